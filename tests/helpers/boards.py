"""Leaderboards without any run."""

from __future__ import annotations

from collections.abc import Sequence

from staleharness.statistics.leaderboard_scores import CapacityResult, Leaderboard, LeaderboardRow, ScoreEstimate, Track

KS = (1, 4, 16)
ENVS = ("A-v1", "B-v1")


def row(label: str, score: float, has_learned: bool = True, seeds: int = 2, kind: str = "method") -> LeaderboardRow:
    """Row whose score falls with K; the runs of a cell lie around its score."""
    values = {k: score * (1.2 - 0.1 * i) for i, k in enumerate(KS)}
    capacities = {
        k: CapacityResult(
            score=ScoreEstimate(value, value - 0.05, value + 0.05),
            runs={
                env: {f"{k:06x}{i:06x} {label} {env}": value + 0.01 * (i - (seeds - 1) / 2) for i in range(seeds)}
                for env in ENVS
            },
            expected=seeds * len(ENVS),
            lag=(k - 1) / 2,
            learning_rate=3e-4,
            tv=0.01 * k,
            ess=0.9,
            difference=ScoreEstimate(value - 0.5, value - 0.6, value - 0.4),
            p=0.03 if value > 0.6 else 0.4,
            curve=tuple((step / 20, value * step / 20) for step in range(1, 21)),
        )
        for k, value in values.items()
    }
    return LeaderboardRow(
        label,
        ScoreEstimate(score, score - 0.05, score + 0.05),
        capacities,
        retention=ScoreEstimate(0.8, 0.7, 0.9),
        has_learned=has_learned,
        cpus=("Test CPU",),
        code=("abc123",),
        kind=kind,
    )


def track(name: str, rows: Sequence[LeaderboardRow]) -> Track:
    return Track(name, name.capitalize(), f"Tasks of {name}.", ENVS, KS, tuple(rows), protocol="f00d")


def board(methods: int = 4, tracks: Sequence[str] = ("control", "tokens"), seeds: int = 2) -> Leaderboard:
    """Every method on every track; the order on the second is the reverse."""
    labels = ["ppo_clip", *(f"method_{i:02d}" for i in range(methods - 1))]
    made = []
    for i, name in enumerate(tracks):
        order = labels[::-1] if i == 1 else labels
        made.append(track(name, [row(label, 1.0 - 0.02 * at, seeds=seeds) for at, label in enumerate(order)]))
    return Leaderboard("A board", tuple(made), ("Read this first.",))
