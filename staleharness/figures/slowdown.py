"""How many times as many steps stale data take to the same score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ..errors import UserError
from ..statistics.lag_curve import lag_curves
from ..statistics.results import Results
from ..statistics.slowdown import LEVEL, Slowdown, slowdowns
from ..statistics.table import Table
from .canvas import INK, PAGE, columns_for, gid, panels, shown
from .captions import looks_of_curves
from .marks import highest_first
from .palette import Style
from .registry import FIGURES

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@FIGURES.register("slowdown")
def slowdown(
    results: Results, table: Table, width: float = PAGE, *, level: float = LEVEL, k: int | None = None
) -> Figure:
    """Steps at K (the largest, unless it is said) over steps at K = 1 until both reach `level` of the method's best
    synchronous score: a row per method, a panel per environment. Raises `UserError` where there is none.
    """
    score = table.settings["score"]
    curves, refused = lag_curves(results, score=score)
    k = max((c.capacities[-1] for c in curves), default=0) if k is None else k
    found: dict[str, dict[str, Slowdown]] = {}
    missing = [f"{r.algorithm} on {r.env}" for r in refused]
    for curve in curves:
        try:
            found.setdefault(curve.env, {})[curve.algorithm] = _at(k, slowdowns(curve, score, level))
        except UserError:
            missing.append(f"{curve.algorithm} on {curve.env}")
    found = {env: rows for env, rows in sorted(found.items()) if rows}
    if not found:
        raise UserError(f"no slowdown at K={k} can be read from these results")
    held = {
        name: [rows[name].factor for rows in found.values() if name in rows]
        for name in sorted({n for rows in found.values() for n in rows})
    }
    # the least slowed first, by the geometric mean over environments; a bound counts as its value
    means = {name: -sum(math.log(f.value) for f in fs) / len(fs) for name, fs in held.items()}
    looks = highest_first(looks_of_curves(table, means), means)
    names = list(looks)
    ns = sorted({c.n for c in curves})
    subtitle = (
        f"steps at K = {k} over steps at K = 1 until both reach {level:.0%} of the method's best synchronous "
        f"{table.settings['measure']} (n = {' to '.join(str(n) for n in dict.fromkeys((ns[0], ns[-1])))} seeds); bars: "
        f"{table.settings['level']:.0%} bootstrap interval; triangle to the right: more than that, not reached in the "
        "steps that there were"
    )
    zeros = " or ".join(sorted({c.zero_note for c in curves}))
    subtitle += f"; scores are counted from {zeros}"
    subtitle += f"; no answer for {', '.join(missing[:4])}" if missing else ""
    subtitle += f" and {len(missing) - 4} more" if len(missing) > 4 else ""
    columns, height = columns_for(width, min(3, len(found))), 0.5 + 0.2 * len(names)
    with panels(
        "Slowdown by stale data", subtitle, [0] * len(found), table=table, columns=columns, height=height, width=width
    ) as (figure, axes):
        for i, (ax, (env, rows)) in enumerate(zip(axes, found.items(), strict=True)):
            _panel(ax, rows, names, looks)
            ax.set_title(env, loc="left")
            ax.set_yticks(range(len(names)), labels=[shown(look.name or name, width) for name, look in looks.items()])
            ax.tick_params(axis="y", length=0, labelleft=i % columns == 0)
    return figure


def _at(k: int, made: Sequence[Slowdown]) -> Slowdown:
    for one in made:
        if one.k == k:
            return one
    raise UserError(f"no runs at K={k}")


def _panel(ax: Axes, rows: Mapping[str, Slowdown], names: Sequence[str], looks: Mapping[str, Style]) -> None:
    """A line per method, from top to bottom; one that has no slowdown here keeps its line, empty."""
    ax.axvline(1, color=INK, linewidth=0.7, dashes=(4, 2))
    for at, name in enumerate(names):
        if name not in rows:
            continue
        row, look = rows[name], looks[name]
        ends = [row.low.value, row.high.value]
        ax.plot(ends, [at, at], color=look.colour, linewidth=3, alpha=0.35, gid=gid(look))
        if row.high.never and not row.factor.never:
            ax.plot(row.high.value, at, color=look.colour, marker=">", markersize=3.5, alpha=0.5, gid=gid(look))
        marker = ">" if row.factor.never else look.marker
        ax.plot(row.factor.value, at, color=look.colour, marker=marker, markersize=5, gid=gid(look))
    values = [f.value for r in rows.values() for f in (r.low, r.factor, r.high)]
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.set_xlim(min(0.8, *values) / 1.1, max(2.0, *values) * math.sqrt(1.5))
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("times as many steps")
