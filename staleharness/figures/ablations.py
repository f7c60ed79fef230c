"""One option of a method or of the run, varied: final score against it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..base.parsing import AlgorithmChoice, parse_algorithm
from ..errors import UserError
from ..statistics.results import Results
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .canvas import PAGE, columns_for, gid, label_edges, panels, shown
from .captions import bars, iqm_axis, scale, size
from .palette import styles
from .registry import FIGURES


def option_values(runs: Iterable[StoredRun], option: str) -> dict[str, Any]:
    """{label: value of the option in that label's runs}; labels whose method lacks it are left out.

    Raises `UserError` where no run has it, or runs of one label differ in it.
    """
    found: dict[str, set[Any]] = {}
    for run in runs:
        spec = run.record["spec"]
        value = spec.get("hyper", {}).get(option, spec.get(option))
        if value is not None:
            found.setdefault(run.label, set()).add(value)
    if not found:
        raise UserError(f"option={option!r}: no run here has it")
    if mixed := [label for label, values in found.items() if len(values) > 1]:
        raise UserError(f"option={option!r} differs among runs of {', '.join(sorted(mixed))}")
    return {label: values.pop() for label, values in found.items()}


def without_option(label: str, option: str) -> str:
    """The label of a method apart from one of its options: what a line over that option is called.

    N, the forward lag, stands behind the brackets: `vaco[delta=0.05] N=4`.
    """
    plain, _, _ = label.partition(" N=")
    if "[" not in plain:
        return plain
    choice = parse_algorithm(plain)
    return AlgorithmChoice(choice.name, {k: v for k, v in choice.options.items() if k != option}).label


@FIGURES.register("score_against_option")
def score_against_option(
    results: Results, table: Table, width: float = PAGE, *, option: str, name: str = ""
) -> Figure:
    """Normalised IQM with its interval against an option's values: one panel per capacity, a line per method."""
    values, ks = option_values(results, option), table.settings["capacities"]
    order = sorted(set(values.values()), key=lambda v: (isinstance(v, str), v))
    method_of = {label: without_option(label, option) for label in values}
    methods = sorted(set(method_of.values()))
    looks = styles(methods)
    subtitle = f"IQM over {size(table)}, {bars(table)}; {scale(table)}; values evenly spaced"
    columns = columns_for(width, min(4, len(ks)))
    with panels(
        f"Score against {name or option}",
        subtitle,
        [0] * len(ks),
        table=table,
        columns=columns,
        height=2.0,
        width=width,
    ) as (figure, axes):
        for ax, k in zip(axes, ks, strict=True):
            for i, method in enumerate(methods):
                look, shift = looks[method], 0.06 * (i - (len(methods) - 1) / 2)
                rows = [
                    (order.index(values[r["algorithm"]]) + shift, r) for r in table.rows
                    if r["capacity"] == k and r["iqm"] is not None and r["algorithm"] in values
                    and method_of[r["algorithm"]] == method
                ]  # fmt: skip
                rows.sort(key=lambda row: row[0])
                for x, r in rows:
                    if r["iqm_low"] is not None:
                        ends = [r["iqm_low"], r["iqm_high"]]
                        ax.plot([x, x], ends, color=look.colour, linewidth=2.6, alpha=0.35, gid=gid(look))
                ax.plot(
                    [x for x, _ in rows], [r["iqm"] for _, r in rows], color=look.colour, marker=look.marker,
                    markersize=5, markeredgecolor="white", markeredgewidth=0.5, gid=gid(look), label=shown(method),
                )  # fmt: skip
            ax.set_xticks(
                range(len(order)), labels=[f"{v:g}" if isinstance(v, float) else str(v) for v in order]
            )
            ax.set_xlim(-0.4, len(order) - 0.6)
            ax.set_title(f"K = {k}", loc="left")
            ax.yaxis.set_major_locator(MaxNLocator(5))
        if len(methods) > 1:
            axes[0].legend(frameon=False)
        label_edges(axes, columns, name or option, iqm_axis(table))
    return figure
