"""Rows of a leaderboard as plain data: methods by track and capacity, with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .order_agreement import Agreement, order_agreement, replication_tau


@dataclass(frozen=True)
class ScoreEstimate:
    """A value and its interval; the ends are None where there are too few runs for one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class CapacityResult:
    """Results of a method at one capacity K of the policy buffer."""

    score: ScoreEstimate | None
    """Share of the reference's gain over a random policy; None without runs."""
    runs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Environment -> run id -> score of the run."""
    expected: int = 0
    """Number of runs that the protocol asks for."""
    lag: float | None = None
    """Mean lag of the data, in phases."""
    learning_rate: float | None = None
    """Chosen on the tuning seeds."""
    tv: float | None = None
    """Total variation between the newest policy and those that acted, mean over training."""
    ess: float | None = None
    """Effective sample size as a share of the data."""
    difference: ScoreEstimate | None = None
    """Score less the baseline's at the same K; None for the baseline."""
    p: float | None = None
    """p value of no difference from the baseline, after Holm's correction over the rows of the track."""
    curve: tuple[tuple[float, float], ...] = ()
    """(share of training, mean score) of each evaluation."""

    @property
    def n(self) -> int:
        """Number of runs that there are."""
        return sum(map(len, self.runs.values()))


@dataclass(frozen=True)
class LeaderboardRow:
    """A method on a track."""

    label: str
    score: ScoreEstimate | None
    """Mean over the capacities."""
    capacities: Mapping[int, CapacityResult]
    retention: ScoreEstimate | None = None
    """Share of its score at the smallest K that remains at the largest."""
    kind: str = "method"
    """`method`, `control` (a width control, which a correction has to beat) or `added` (a bundle of somebody else)."""
    has_learned: bool = True
    """True from half of the baseline's score at the smallest K on; other methods are listed apart."""
    cpus: tuple[str, ...] = ()
    """Kinds of CPU of its runs."""
    digest: str = ""
    """Hash of the method's code, from its runs."""
    method: str = ""
    """Name by which tracks are compared, where options differ between them; empty: the label."""

    @property
    def name(self) -> str:
        return self.method or self.label


@dataclass(frozen=True)
class Track:
    """Methods ranked by one protocol on fixed tasks."""

    name: str
    title: str
    about: str
    """Tasks, budget and rule of the score, in a sentence or two of plain text."""
    envs: tuple[str, ...]
    ks: tuple[int, ...]
    rows: tuple[LeaderboardRow, ...]
    """Any order; pages sort them."""
    protocol: str = ""
    """Digest of the protocol; empty for runs that were made before it."""
    baseline: str = "ppo_clip"

    @property
    def ranking(self) -> list[LeaderboardRow]:
        """Rows that learned and have a score, best first."""
        rows = [row for row in self.rows if row.has_learned and row.score is not None]
        return sorted(rows, key=lambda row: (-row.score.value if row.score else 0.0, row.label))

    @property
    def apart(self) -> list[LeaderboardRow]:
        """Rows that did not learn or have no score, by label."""
        return sorted((row for row in self.rows if not row.has_learned or row.score is None), key=lambda row: row.label)

    @property
    def runs(self) -> tuple[int, int]:
        """Number of runs that there are, and that the protocol asks for."""
        results = [result for row in self.rows for result in row.capacities.values()]
        return sum(r.n for r in results), sum(max(r.expected, r.n) for r in results)

    @property
    def replication(self) -> float | None:
        """Expected Kendall τ between the orders of two further replications (`replication_tau`)."""
        return replication_tau(
            {
                row.label: [list(runs.values()) for k in self.ks for runs in row.capacities[k].runs.values()]
                for row in self.ranking
                if set(self.ks) <= row.capacities.keys()
            }
        )

    def agreement(self, other: Track) -> Agreement | None:
        """Agreement of the two orders, over the methods that both rank."""
        scores = ({r.name: r.score.value for r in track.ranking if r.score} for track in (self, other))
        return order_agreement(*scores)


@dataclass(frozen=True)
class Leaderboard:
    """All tracks of a benchmark."""

    title: str
    tracks: tuple[Track, ...]
    notes: tuple[str, ...] = ()
    """Remarks that come first on the page, a line each."""
