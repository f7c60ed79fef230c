"""Scores of a leaderboard: methods by track and capacity, with intervals and tests of every two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np

from .rank_correlation import Agreement, order_agreement, replication_tau
from .scores import Array
from .significance_and_power import ALPHA, holm, results_key
from .t_tests_and_intervals import welch


class PairTest(NamedTuple):
    """Difference of the mean scores of two rows at one capacity, the first less the second."""

    value: float
    low: float | None
    high: float | None
    p: float
    """Welch's, after Holm's correction over all pairs of the track at this capacity."""

    @property
    def side(self) -> int:
        """1 where the first is significantly above, −1 where it is below, else 0."""
        return 0 if self.p >= ALPHA else 1 if self.value > 0 else -1


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
    """p value of no difference from the baseline, after Holm's correction over the rows at this K that learned."""
    between_cpus: bool = False
    """True if its runs and the baseline's are of different kinds of CPU."""
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
    """`method`, `control` (a width control, which a correction has to beat), `added` (of a third party's bundle),
    `preview`, `partial` (runs are missing) or `diverged`; only methods have a rank."""
    has_learned: bool = True
    """True if its score at the smallest K is at least half of the baseline's; other methods are listed apart."""
    cpus: tuple[str, ...] = ()
    """Kinds of CPU of its runs."""
    code: tuple[str, ...] = ()
    """Hashes of the method's code, as its runs recorded them."""
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
    """Rows in any order; pages sort them."""
    protocol: str = ""
    """Digest of the protocol; empty for runs that were made before it."""
    baseline: str = "ppo_clip"

    @property
    def ranking(self) -> list[LeaderboardRow]:
        """Rows that learned and have a score, best first."""
        rows = [row for row in self.rows if row.has_learned and row.score is not None]
        return sorted(rows, key=lambda row: (-row.score.value if row.score else 0.0, row.label))

    @property
    def methods(self) -> list[LeaderboardRow]:
        """Rows of `ranking` that are complete and no controls: a row's place in it is its rank."""
        return [row for row in self.ranking if row.kind == "method"]

    def twins(self, k: int) -> dict[str, str]:
        """Map each row that has tests at one capacity to the first with the same results."""
        first: dict[tuple[tuple[float, ...], ...], str] = {}
        return {label: first.setdefault(results_key(columns), label) for label, columns in self._columns(k).items()}

    def _columns(self, k: int) -> dict[str, list[Array]]:
        """Scores [runs] of each task, by the labels of rows with two runs of each."""
        rows = [row for row in self.ranking if row.kind not in ("preview", "partial")]
        runs = {row.label: row.capacities[k].runs for row in rows if k in row.capacities}
        return {
            label: [np.array(list(by_id.values())) for _, by_id in sorted(by_env.items())]
            for label, by_env in runs.items()
            if by_env.keys() == set(self.envs) and min(map(len, by_env.values())) >= 2
        }

    def pair_tests(self, k: int) -> dict[tuple[str, str], PairTest]:
        """Tests of every two rows of `ranking` at one capacity: labels -> test, in both orders.

        Previews, partial rows and those without two runs of each task there are left out, and pairs of rows with the
        same results, which are one computation: Holm's correction counts it once.
        """
        columns, twins = self._columns(k), self.twins(k)
        pairs = list(combinations(dict.fromkeys(twins.values()), 2))
        tests = [welch(columns[a], columns[b]) for a, b in pairs]
        table: dict[tuple[str, str], PairTest] = {}
        for (a, b), test, p in zip(pairs, tests, holm([test.p for test in tests]), strict=True):
            table[a, b] = PairTest(test.value, test.low, test.high, float(p))
            low, high = (None if end is None else -end for end in (test.high, test.low))
            table[b, a] = PairTest(-test.value, low, high, float(p))
        return {(a, b): table[twins[a], twins[b]] for a, b in permutations(columns, 2) if twins[a] != twins[b]}

    @property
    def rows_without_rank(self) -> list[LeaderboardRow]:
        """Rows that did not learn or have no score, by label."""
        return sorted((row for row in self.rows if not row.has_learned or row.score is None), key=lambda row: row.label)

    @property
    def runs(self) -> tuple[int, int]:
        """Number of runs that there are, and that the protocol asks for. A run of two rows counts once."""
        results = [result for row in self.rows for result in row.capacities.values()]
        have = len({run for r in results for by_id in r.runs.values() for run in by_id})
        return have, have + sum(max(r.expected - r.n, 0) for r in results)

    @property
    def replication(self) -> float | None:
        """Expected Kendall τ between the orders of methods in two further replications (`replication_tau`)."""
        return replication_tau(
            {
                row.label: [list(runs.values()) for k in self.ks for runs in row.capacities[k].runs.values()]
                for row in self.methods
                if set(self.ks) <= row.capacities.keys()
            }
        )

    def agreement(self, other: Track) -> Agreement | None:
        """Agreement of the two orders, over the methods that both rank."""
        scores = ({r.name: r.score.value for r in track.methods if r.score} for track in (self, other))
        return order_agreement(*scores)


@dataclass(frozen=True)
class Leaderboard:
    """All tracks of a benchmark."""

    title: str
    tracks: tuple[Track, ...]
    notes: tuple[str, ...] = ()
    """Remarks that come first on the page, a line each."""
