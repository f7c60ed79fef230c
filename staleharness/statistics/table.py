"""Table of results as data. Imports nothing heavy, so that a cached table shows at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from ..store.stored_run import StoredRun

COLUMNS = tuple(
    "algorithm env capacity n_runs n_tasks iqm iqm_low iqm_high median median_low median_high mean mean_low mean_high "
    "optimality_gap optimality_gap_low optimality_gap_high raw_mean auc auc_low auc_high retained retained_low "
    "retained_high lag_mean tv ess clipped "
    "seconds missing".split()
)


def extent(runs: Iterable[StoredRun]) -> dict[str, list[Any]]:
    """Days and sizes (phases, steps) of runs, for the settings of a table."""
    records = [run.record for run in runs]
    return {
        "dates": sorted({str(record["date"]) for record in records}),
        "sizes": [list(size) for size in sorted({(r["phases"], r["steps"]) for r in records})],
    }


@dataclass(frozen=True)
class Table:
    """One row per (algorithm, capacity), aggregated over environments; every row has the keys of `COLUMNS`.

    A number that does not exist (an interval from one run, a score of no run) is None.
    """

    rows: list[dict[str, Any]]
    notes: list[str]  # on missing runs, unequal seeds, mixed versions, ...
    settings: dict[str, Any]  # score, normalise, constants {env: [low, high]}, reps, level, envs, dates, sizes, answers

    @property
    def draft(self) -> bool:
        """Return whether runs of the study are missing."""
        return any(row["missing"] for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def frame(self) -> pd.DataFrame:
        """The rows as a data frame, columns as in `COLUMNS`."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(COLUMNS))

    @property
    def answers(self) -> list[str]:
        """Cost of lag: a sentence for each K beyond 1, where there are runs at K = 1."""
        return list(self.settings.get("answers", ()))

    @property
    def published(self) -> list[str]:
        """Methods whose rows at K = 1 are published runs, not the user's."""
        return list(self.settings.get("published", {}).get("algorithms", ()))

    @property
    def headline(self) -> str:
        """One line on the measure, scale and intervals."""
        s = self.settings
        scale = f"normalised: {s['normalise']} ({s['constants_note']})"
        ends = f"{s['level']:.0%} stratified bootstrap intervals, {s['reps']:,} resamples ({s['engine']})"
        return f"{', '.join(s['envs'])} | {s['measure']} | {scale} | {ends}"


AGGREGATES = ("iqm", "median", "mean", "optimality_gap")


def distinct_aggregates(table: Table) -> list[str]:
    """`AGGREGATES` without those that equal an earlier one in every row, as the median equals the mean of one or two
    environments, or its complement, as the gap may."""
    distinct: dict[str, list[float | None]] = {}
    for name in AGGREGATES:
        values = [row[name] for row in table.rows]
        scores = [v if v is None or name != "optimality_gap" else 1 - v for v in values]
        column = [None if v is None else round(v, 9) for v in scores]
        if column not in distinct.values():
            distinct[name] = column
    return list(distinct)


def is_published(row: Mapping[str, Any], table: Table) -> bool:
    """Return whether a row is of published runs."""
    return row["capacity"] == 1 and row["algorithm"] in table.published
