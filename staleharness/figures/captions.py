"""What the second line of a figure says: n, the interval, the score and its scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..base.text import plural
from ..statistics.labels import display_label
from ..statistics.small_samples import has_intervals, has_small_samples
from ..statistics.table import Table
from ..store.run_grid import RunGrid
from ..store.stored_run import StoredRun
from .palette import Style, in_order, styles


def labels(table: Table) -> list[str]:
    """All algorithms of a table, in the order in which figures show them."""
    return sorted({r["algorithm"] for r in table.rows})


def looks_of(table: Table) -> dict[str, Style]:
    """How each algorithm of a table looks, and what readers call it. Where it is a part of a larger one (`series`), as
    it looks there; `values` of an option make an order, light to dark; `names` are the figure's own for some."""
    names, values = table.settings.get("names", {}), table.settings.get("values", {})
    there = labels(table)
    if values and set(there) <= set(values):
        looks = in_order({label: values[label] for label in there})
    else:
        whole = styles([*table.settings.get("series", ()), *there])
        looks = {label: whole[label] for label in there}
    return {label: replace(look, name=display_label(label, names)) for label, look in looks.items()}


def looks_of_curves(table: Table, names: Iterable[str]) -> dict[str, Style]:
    """The same of curves against lag, which join rows that differ in lag alone and name the lag model where there are
    several: as their rows look where they are called alike, otherwise by themselves."""
    looks, names = looks_of(table), sorted(set(names))
    if not set(names) <= set(looks):
        own = table.settings.get("names", {})
        looks = {name: replace(look, name=display_label(name, own)) for name, look in styles(names).items()}
    return {name: look for name, look in looks.items() if name in names}


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers, default=0), max(numbers, default=0)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def seeds(found: RunGrid) -> str:
    """How many runs a cell has."""
    return f"n = {_span([len(rs) for rs in found.cells.values()])}"


def machines(runs: Iterable[StoredRun]) -> str:
    """The processors that runs were made on."""
    return ", ".join(sorted({str(r.record["fingerprint"].get("cpu")) for r in runs}))


def size(table: Table) -> str:
    """How many runs and tasks a row rests on, and whether runs are missing."""
    there = [r for r in table.rows if r["n_runs"]]
    runs, tasks = ([r[c] for r in there] for c in ("n_runs", "n_tasks"))
    missing = sum(r["missing"] for r in table.rows)
    text = f"n = {_span(runs)} {'run' if set(runs) == {1} else 'runs'} × "
    text += f"{_span(tasks)} {'task' if set(tasks) == {1} else 'tasks'}"
    return text + (f" ({plural(missing, 'run')} missing)" if missing else "")


def made(table: Table) -> str:
    """How big the runs are and when they were made."""
    s = table.settings
    phases, steps = (_span([size[i] for size in s["sizes"]]) for i in (0, 1))
    days = " to ".join(dict.fromkeys([s["dates"][0], s["dates"][-1]])) if s["dates"] else "no day"
    where = f"{s['scale']}: " if "scale" in s else ""
    return f"{where}{phases} phases, {steps} steps per run; runs of {days}"


def axis(table: Table) -> str:
    """The label of an axis of scores: an accuracy is shown as it is, a return normalised."""
    return str(table.settings["measure"]) if table.settings["normalise"] == "raw" else "normalised score"


def band(table: Table) -> str:
    """What the coloured band around a curve is, or the thin lines beside it."""
    return _shown(table, f"band: {table.settings['level']:.0%} pointwise bootstrap interval", "thin lines: the runs")


def spread(table: Table) -> str:
    """What the band around a mean of a diagnostic is."""
    return _shown(
        table, f"band: {table.settings['level']:.0%} pointwise interval (Student's)", "band: range of the runs"
    )


def bars(table: Table) -> str:
    """What the bar around a point is, or the dots beside it."""
    return _shown(table, f"bars: {interval(table)}", "dots: the runs")


def below(table: Table) -> str:
    """What stands below a number in a table: its interval, or its runs."""
    return _shown(table, f"its {interval(table)}", "its runs")


def interval(table: Table) -> str:
    return f"{table.settings['level']:.0%} stratified bootstrap interval"


def _shown(table: Table, interval: str, runs: str) -> str:
    """What is shown of rows with runs enough for an interval, and of those without."""
    if not has_small_samples(table):
        return interval
    return (
        f"{interval}, or {runs} where too few for one" if has_intervals(table) else f"{runs} (too few for an interval)"
    )


def iqm_axis(table: Table) -> str:
    """The label of an axis of interquartile means."""
    return f"IQM of {table.settings['measure']}" if table.settings["normalise"] == "raw" else "normalised IQM"


def scale(table: Table) -> str:
    """Which score is shown, and how it is normalised."""
    s = table.settings
    scale = "not normalised" if s["normalise"] == "raw" else f"normalised: {s['normalise']}"
    return f"{s['measure']}, {scale}"
