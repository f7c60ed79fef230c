"""Final score against one or two options of a method or of the run, and by mismatch model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..statistics.method_labels import (
    display_label,
    option_text,
    option_values,
    ordered_values,
    value_text,
    without_options,
)
from ..statistics.results import Results
from ..statistics.table import Table
from .captions import bars, below, iqm_axis, run_facts, scale, size
from .palette import Style, styles, with_names
from .plot_layout import PAGE, columns_for, label_edges, legend, panels
from .plot_marks import dots, draw_interval, draw_line, name_identical_lines
from .registry import FIGURES, SHEETS, Section
from .table_markup import Block, Sheet, SheetCell, iqm_cell

Cells = Mapping[tuple[int, Any], Mapping[str, Any]]  # (K, value) -> row of the table
NO_MISMATCH = "none"  # mismatch model of a sampler that is the trainer


@dataclass(frozen=True)
class OptionLines:
    """Lines of the IQM against an option's values, which are evenly spaced in `order`."""

    table: Table
    values: Mapping[str, Any]  # of the option, by label
    methods: Mapping[str, str]  # label -> method, its label without the options
    order: Sequence[Any]

    @property
    def looks(self) -> dict[str, Style]:
        return with_names(styles(self.methods.values()), self.table.settings.get("names"))

    def draw(self, ax: Axes, k: int, labels: set[str], distance: float, marker: float, thick: float) -> None:
        """Draw a line per method through its rows at K that are in `labels`. Lines are set apart by `distance`, so
        that no interval hides another."""
        looks = self.looks
        for i, (method, look) in enumerate(looks.items()):
            shift = distance * (i - (len(looks) - 1) / 2)
            rows = [
                (self.order.index(self.values[r["algorithm"]]), r)
                for r in self.table.rows
                if r["capacity"] == k and r["iqm"] is not None and r["algorithm"] in labels
                if self.methods[r["algorithm"]] == method
            ]
            rows.sort(key=lambda row: row[0])
            for x, r in rows:
                if "dots" in r:
                    dots(ax, x + shift, r["dots"]["iqm"], look)
                elif r["iqm_low"] is not None:
                    draw_interval(ax, look, [x + shift] * 2, [r["iqm_low"], r["iqm_high"]], thick)
            line = [x + shift for x, _ in rows], [r["iqm"] for _, r in rows]
            draw_line(ax, look, *line, marker=marker, label=look.name)

    def axis(self, ax: Axes, title: str) -> None:
        ax.set_xticks(range(len(self.order)), labels=map(value_text, self.order))
        ax.set_xlim(-0.4, len(self.order) - 0.6)
        ax.set_title(title, loc="left")
        ax.yaxis.set_major_locator(MaxNLocator(5))


@FIGURES.register("score_against_option")
def score_against_option(results: Results, table: Table, width: float = PAGE, *, option: str, name: str = "") -> Figure:
    """Normalised IQM with its interval against an option's values: one panel per capacity, a line per method."""
    values, ks = option_values(results, option), table.settings["capacities"]
    methods = {label: without_options(label, option) for label in values}
    lines = OptionLines(table, values, methods, ordered_values(values.values()))
    subtitle = f"IQM over {size(table)}, {bars(table)}; {scale(table)}; values evenly spaced, lines set apart"
    with panels(f"Score against {name or option}", subtitle, [0] * len(ks), table, width, 2.0) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            lines.draw(ax, k, set(values), 0.06, 5, 2.6)
            lines.axis(ax, f"K = {k}")
        if len(lines.looks) > 1:
            axes[0].legend(frameon=False)
        label_edges(axes, name or option, iqm_axis(table))
    return figure


@FIGURES.register("score_against_two_options")
def score_against_two_options(
    results: Results,
    table: Table,
    width: float = PAGE,
    *,
    option: str,
    across: str,
    name: str = "",
    across_name: str = "",
) -> Figure:
    """IQM with its interval against `option`: a column of panels per value of `across`, a row per capacity, a line per
    method. Raises `UserError` where no run has an option, or runs of one label differ in it.
    """
    along, crossing = option_values(results, option), option_values(results, across)
    methods = {label: without_options(label, option, across) for label in along}
    lines = OptionLines(table, along, methods, ordered_values(along.values()))
    values = ordered_values(crossing.values())
    places = [(k, value) for k in table.settings["capacities"] for value in values]
    subtitle = f"IQM over {size(table)}, {bars(table)}; {scale(table)}; values evenly spaced, lines set apart"
    title = f"Score against {name or option}, by {across_name or across} and K"
    columns = columns_for(width, len(values))
    with panels(title, subtitle, [0] * len(places), table, width, 1.55, columns) as (figure, axes):
        for ax, (k, value) in zip(axes, places, strict=True):
            lines.draw(ax, k, {label for label in along if crossing.get(label) == value}, 0.07, 4.5, 2.2)
            name_identical_lines(ax, lines.looks)
            lines.axis(ax, f"{across_name or across} = {value_text(value)}, K = {k}")
        label_edges(axes, name or option, iqm_axis(table))
        legend(figure, lines.looks)
    return figure


@SHEETS.register("phase_diagram")
def phase_diagram(results: Results, table: Table, *, option: str, name: str = "") -> Sheet:
    """Normalised IQM with its interval over capacity and an option's values, greatest on top: a map per method, the
    best value at each capacity bold if it is clear."""
    values, ks = option_values(results, option), table.settings["capacities"]
    order = ordered_values(values.values())[::-1]
    method_of = {label: without_options(label, option) for label in values}
    blocks = []
    for method in sorted(set(method_of.values())):
        rows = {
            (r["capacity"], values[r["algorithm"]]): r
            for r in table.rows
            if method_of.get(r["algorithm"]) == method and r["iqm"] is not None
        }
        lines = [(value_text(v), [_score_cell(rows, k, v, order) for k in ks]) for v in order]
        blocks.append(Block(display_label(method), name or option, [f"K = {k}" for k in ks], lines))
    about = (
        f"IQM over {size(table)}, with {below(table)}; bold: the best value at its K, where its interval, or each "
        f"of its runs, is above the next best's estimate; {scale(table)}"
    )
    return Sheet(f"Score over K and {name or option}", [about, run_facts(table)], blocks, table.draft)


def _score_cell(rows: Cells, k: int, value: Any, order: Sequence[Any]) -> SheetCell:
    row = rows.get((k, value))
    if row is None:
        return SheetCell("–")
    low = row["iqm_low"]
    others = [rows[k, v]["iqm"] for v in order if v != value and (k, v) in rows]
    dots = row.get("dots", {}).get("iqm", [])
    clear = bool(others) and (low > max(others) if low is not None else len(dots) > 1 and min(dots) > max(others))
    return iqm_cell(row, row["iqm"], clear)


def _models(results: Results) -> dict[str, str]:
    """Map each label to its mismatch model."""
    return {run.label: str(run.spec.get("mismatch", NO_MISMATCH)) for run in results}


@SHEETS.register(
    "score_by_mismatch",
    Section(
        61,
        "Score by mismatch model",
        "Normalised IQM of each method on data that a copy of its policy sampled. Darker is higher.",
        lambda results: len(set(_models(results).values())) > 1,
    ),
)
def score_by_mismatch(results: Results, table: Table) -> Sheet:
    """IQM with its interval over method and mismatch model, one block per environment and capacity."""
    model_of, names = _models(results), table.settings.get("names", {})
    order = list(names)  # of models that a figure names, after the others
    place = {model: order.index(model) if model in names else -1 for model in model_of.values()}
    models = sorted(place, key=lambda model: (model != NO_MISMATCH, place[model], model))
    methods = {label: without_options(label, "mismatch") for label in model_of}
    rows: dict[tuple[str, int], dict[tuple[str, str], dict[str, Any]]] = {}
    for row in table.rows:
        if row["iqm"] is not None:
            key = methods[row["algorithm"]], model_of[row["algorithm"]]
            rows.setdefault((row["env"], row["capacity"]), {})[key] = row
    headings = {model: option_text("mismatch", model).removeprefix("mismatch ") for model in models}
    headings |= {NO_MISMATCH: "no mismatch", **names}
    blocks = []
    for (env, k), cells in sorted(rows.items()):
        lines = [
            (display_label(method, names), [_mismatch_cell(cells, method, model) for model in models])
            for method in dict.fromkeys(methods.values())
            if any((method, model) in cells for model in models)
        ]
        title = f"{env}, K = {k}" if len(results.grid.envs) > 1 else f"K = {k}"
        blocks.append(Block(title, "algorithm", [headings[model] for model in models], lines))
    about = (
        f"IQM over {size(table)}, with {below(table)}; bold: the interval, or each of the runs, is below the estimate "
        f"without a mismatch; {scale(table)}"
    )
    return Sheet("Score by mismatch model", [about, run_facts(table)], blocks, table.draft)


def _mismatch_cell(cells: dict[tuple[str, str], dict[str, Any]], method: str, model: str) -> SheetCell:
    row = cells.get((method, model))
    if row is None:
        return SheetCell("–")
    plain, dots = cells.get((method, NO_MISMATCH)), row.get("dots", {}).get("iqm", [])
    upper = row["iqm_high"] if row["iqm_high"] is not None else max(dots, default=None)
    is_lower = plain is not None and plain is not row and upper is not None and upper < plain["iqm"]
    return iqm_cell(row, row["iqm"], is_lower)
