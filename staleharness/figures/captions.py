"""Second line of a figure: n, the interval, the score and its scale."""

from __future__ import annotations

from collections.abc import Iterable

from ..base.text_formatting import plural, span
from ..statistics.table import Table, has_intervals, has_small_samples
from ..store.run_grid import RunGrid
from ..store.stored_run import StoredRun


def seeds(grid: RunGrid) -> str:
    """Number of runs in a cell, in words."""
    return f"n = {span(map(len, grid.cells.values()))}"


def machines(runs: Iterable[StoredRun]) -> str:
    """Processors that runs were made on."""
    return ", ".join(sorted({str(r.record["fingerprint"].get("cpu")) for r in runs}))


def size(table: Table) -> str:
    """Number of runs and tasks of a row, and of missing runs, in words."""
    rows = [r for r in table.rows if r["n_runs"]]
    runs, tasks = ([r[c] for r in rows] for c in ("n_runs", "n_tasks"))
    missing = sum(r["missing"] for r in table.rows)
    text = f"n = {span(runs)} {'run' if set(runs) == {1} else 'runs'} × "
    text += f"{span(tasks)} {'task' if set(tasks) == {1} else 'tasks'}"
    return text + (f" ({plural(missing, 'run')} missing)" if missing else "")


def run_facts(table: Table) -> str:
    """Size and dates of the runs, in words."""
    s = table.settings
    phases, steps = (span(size[i] for size in s["sizes"]) for i in (0, 1))
    days = " to ".join(dict.fromkeys([s["dates"][0], s["dates"][-1]])) if s["dates"] else "no day"
    where = f"{s['scale']}: " if "scale" in s else ""
    return f"{where}{phases} phases, {steps} steps per run; runs of {days}"


def axis(table: Table) -> str:
    """Label of an axis of scores: an accuracy is shown as it is, a return normalised."""
    return str(table.settings["measure"]) if table.settings["normalise"] == "raw" else "normalised score"


def band(table: Table) -> str:
    """Legend of the coloured band around a curve, or of the thin lines beside it."""
    return _interval_or_runs(
        table, f"band: {table.settings['level']:.0%} pointwise bootstrap interval", "thin lines: the runs"
    )


def spread(table: Table) -> str:
    """Legend of the band around the mean of a diagnostic."""
    return _interval_or_runs(
        table, f"band: {table.settings['level']:.0%} pointwise interval (Student's)", "band: range of the runs"
    )


def bars(table: Table) -> str:
    """Legend of the bar around a point, or of the dots beside it."""
    return _interval_or_runs(table, f"bars: {interval(table)}", "dots: the runs")


def below(table: Table) -> str:
    """Legend of the line below a number in a table: its interval, or its runs."""
    return _interval_or_runs(table, f"its {interval(table)}", "its runs")


def interval(table: Table) -> str:
    return f"{table.settings['level']:.0%} stratified bootstrap interval"


def _interval_or_runs(table: Table, interval: str, runs: str) -> str:
    """Legend of rows with enough runs for an interval, of those without, or of both."""
    if all(row["n_runs"] <= 1 for row in table.rows):
        return "one run each, no interval"
    if not has_small_samples(table):
        return interval
    if has_intervals(table):
        return f"{interval}, or {runs} where too few for one"
    return f"{runs} (too few for an interval)"


def iqm_axis(table: Table) -> str:
    """Label of an axis of interquartile means."""
    return f"IQM of {table.settings['measure']}" if table.settings["normalise"] == "raw" else "normalised IQM"


def scale(table: Table) -> str:
    """Name of the score and its normalisation."""
    s = table.settings
    scale = "not normalised" if s["normalise"] == "raw" else f"normalised: {s['normalise']}"
    return f"{s['measure']}, {scale}"
