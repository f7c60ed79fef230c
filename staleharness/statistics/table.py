"""Table of results as data and as text. Imports nothing heavy, so that a cached table shows at once."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..base.table_formatting import WIDTH, fit, fixed_width, rows_to_csv
from ..base.text_formatting import duration, number, printable, wrap_lines

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
    def accuracy(self) -> bool:
        """Return whether scores are shares between 0 and 1, not returns."""
        return bool(self.settings.get("accuracy"))

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
    environments, or its complement, as the gap may, and without a gap that no row has."""
    distinct: dict[str, list[float | None]] = {}
    for name in AGGREGATES:
        values = [row[name] for row in table.rows]
        scores = [v if v is None or name != "optimality_gap" else 1 - v for v in values]
        column = [None if v is None else round(v, 9) for v in scores]
        if column not in distinct.values() and (name != "optimality_gap" or any(v is not None for v in values)):
            distinct[name] = column
    return list(distinct)


def has_small_samples(table: Table) -> bool:
    """Return whether any row shows its runs."""
    return any("dots" in row for row in table.rows)


def has_intervals(table: Table) -> bool:
    """Return whether any row with runs shows an interval."""
    return any("dots" not in row for row in table.rows if row["n_runs"])


def is_published(row: Mapping[str, Any], table: Table) -> bool:
    """Return whether a row is of published runs."""
    return row["capacity"] == 1 and row["algorithm"] in table.published


def to_csv(table: Table) -> str:
    """All columns, full precision, empty where there is no number."""
    return rows_to_csv(table.rows, COLUMNS)


def interval(row: Mapping[str, Any], name: str) -> str:
    """`0.83 [0.71, 0.90]`; the bracket is a dash where the interval is undefined."""
    if row[name] is None:
        return "–"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{number(row[name])} " + ("[–]" if low is None else f"[{number(low)}, {number(high)}]")


def retained_text(row: Mapping[str, Any]) -> str:
    """`68% [41, 95]`: share of its score at K = 1 that a method retains; a dash at K = 1, and without runs there."""
    share, low, high = (row.get(f"retained{end}") for end in ("", "_low", "_high"))
    if share is None:
        return "–"
    ends = "" if low is None or high is None else f" [{100 * low:.0f}, {100 * high:.0f}]"
    return f"{100 * share:.0f}%" + ends


def count(row: Mapping[str, Any]) -> str:
    """Runs × tasks; `*` where runs are missing."""
    return f"{row['n_runs']}×{row['n_tasks']}" + ("*" if row["missing"] else "")


def raw_digits(table: Table) -> int:
    """Digits of a raw score: an accuracy needs more than a return."""
    return 3 if table.accuracy else 1


def plain(table: Table, width: int = WIDTH) -> str:
    """Format the table as fixed-width text of at most `width` columns, headline above and notes below. Columns without
    room are left out and named."""
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "algorithm": lambda row: printable(row["algorithm"]),
        "K": lambda row: str(row["capacity"]) + ("*" if is_published(row, table) else ""),
        f"IQM [{table.settings['level']:.0%} CI]": lambda row: interval(row, "iqm"),
        "retained": retained_text,
        "median": lambda row: number(row["median"]),
        "mean": lambda row: number(row["mean"]),
        "gap": lambda row: number(row["optimality_gap"]),
        "raw": lambda row: number(row["raw_mean"], raw_digits(table)),
        "lag": lambda row: number(row["lag_mean"]),
        "TV": lambda row: number(row["tv"], 3),
        "ESS": lambda row: number(row["ess"]),
        "clip%": lambda row: number(None if row["clipped"] is None else 100 * row["clipped"], 1),
        "n": count,
        "time": lambda row: duration(row["seconds"]),
    }
    for header, name in (("retained", "retained"), ("gap", "optimality_gap")):
        if all(row.get(name) is None for row in table.rows):
            del columns[header]
    cells = [[cell_text(row) for cell_text in columns.values()] for row in table.rows]
    dispensable = ("gap", "clip%", "median", "ESS", "time", "TV", "mean", "raw")  # in the order in which they go
    headers, lines, hidden = fit(list(columns), cells, width, [name for name in dispensable if name in columns])
    above = [line for words in (*table.answers, table.headline) for line in textwrap.wrap(words, width)]
    text = [*above, *fixed_width(headers, lines)]
    no_room = [f"no room for {', '.join(hidden)}: they are in the report and in table.csv"] if hidden else []
    text += wrap_lines([*no_room, *(f"note: {note}" for note in table.notes)], width)
    return "\n".join(map(printable, text))
