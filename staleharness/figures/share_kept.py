"""The share of the synchronous score that is kept, against the mean lag of the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..statistics.advice import Advice, advise
from ..statistics.budget import KEEP
from ..statistics.method_advice import MethodAdvice
from ..statistics.results import Results
from ..statistics.table import Table
from .canvas import FAINT, INK, PAGE, columns_for, gid, legend, panels, percent_axis
from .captions import looks_of_curves
from .palette import Style
from .registry import FIGURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

GAP = 0.1  # of the smallest distance between lags: no method's points stand further from the next one's
TOP = 1.5  # a share above this stands here with its number: drawn to scale it would squeeze all others


@FIGURES.register("share_kept")
def share_kept(results: Results, table: Table, width: float = PAGE, *, keep: float = KEEP) -> Figure:
    """The share of its synchronous IQM that a method keeps at each measured lag, a panel per environment."""
    found = advise(results, keep=keep, score=table.settings["score"])
    looks = looks_of_curves(table, (m.curve.algorithm for m in found.methods))
    columns = columns_for(width, min(3, len(found.envs)))
    with panels(
        "Share of the synchronous score that is kept",
        caption(found),
        [0] * len(found.envs),
        table=table,
        columns=columns,
        height=1.9,
        width=width,
    ) as (figure, axes):
        for i, (ax, env) in enumerate(zip(axes, found.envs, strict=True)):
            ax.set_title(env, loc="left")
            against_lag(ax, found, env, looks)
            ax.set_ylabel("" if i % columns else "share kept")
        legend(figure, looks)
    return figure


def caption(found: Advice) -> str:
    """n, the interval, the zero, and what is not shown."""
    s = found.settings
    ns = sorted({len(c) for m in found.methods for c in m.curve.scores})
    n = " to ".join(str(i) for i in dict.fromkeys((ns[0], ns[-1])))
    zeros = " or ".join(sorted({m.curve.zero_note for m in found.methods}))
    text = (
        f"share of the synchronous IQM of {s['measure']}, counted from {zeros} (n = {n} seeds a point); lines: not "
        f"rising with lag, straight between points; points: as measured; bars: {s['level']:.0%} bootstrap interval of "
        f"the line; dashed: {s['keep']:.0%}"
    )
    if any((m.retention.raw > TOP).any() for m in found.methods):
        text += f"; points with a number: above {TOP:.0%}"
    if found.refusals:
        names = sorted({f"{r.algorithm} on {r.env}" for r in found.refusals})
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        text += f"; no answer for {', '.join(names[:4])}{more}"
    return text


def against_lag(ax: Axes, found: Advice, env: str, looks: Mapping[str, Style]) -> None:
    """The panel of one environment, with the log where there is one."""
    methods = found.on(env)
    end = max(float(m.curve.lags[-1]) for m in methods)
    keep = found.settings["keep"]
    nearest = min(np.diff(m.curve.lags).min() for m in methods)
    step = min(0.012 * end, GAP * nearest)  # so that intervals do not hide each other
    ax.axhline(keep, color=INK, linewidth=0.7, dashes=(4, 2))
    for at, method in enumerate(methods):
        look, share = looks[method.curve.algorithm], method.retention
        shift = step * (at - (len(methods) - 1) / 2)
        ax.plot(share.lags, share.fit, color=look.colour, dashes=look.dashes, linewidth=1.1, gid=gid(look))
        for point in method.row["points"][1:]:
            x = [point["lag"] + shift] * 2
            bar = [point["kept_low"], point["kept_high"]]
            ax.plot(x, bar, color=look.colour, linewidth=2, alpha=0.35, gid=gid(look))
        ax.plot(
            share.lags[1:] + shift,
            np.minimum(share.raw[1:], TOP),
            color=look.colour,
            linestyle="",
            marker=look.marker,
            markersize=4.5,
            markeredgecolor="white",
            markeredgewidth=0.5,
            gid=gid(look),
        )
        for lag, raw in zip(share.lags[1:], share.raw[1:], strict=True):
            if raw > TOP:
                left = lag < end / 2
                ax.annotate(
                    f"{raw:.0%}",
                    (lag + shift, TOP),
                    xytext=(5 if left else -5, 0),
                    textcoords="offset points",
                    ha="left" if left else "right",
                    va="center",
                    color=look.colour,
                    fontsize="small",
                    gid=gid(look),
                )
    if found.log is not None:
        end = max(end, _scale(found, methods) * max(found.log.mean, found.log.quantile(0.95)))
        _log(ax, found, methods, end)
    ax.set_ylim(*_span(found.methods))  # one for all environments
    ax.set_xlim(-0.03 * end, end * 1.06)
    percent_axis(ax)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel("mean lag, phases")


def _span(methods: list[MethodAdvice]) -> tuple[float, float]:
    """Ends of the axis of shares: from 0, but where nothing comes near it."""
    low = min(min(float(m.retention.raw.min()), *(p["kept_low"] for p in m.row["points"])) for m in methods)
    high = min(TOP, max(1.0, *(float(m.retention.raw.max()) for m in methods)))
    margin = 0.04 * (high - min(low, 1.0)) + 0.01
    return (low if low > 0.5 else min(0.0, low)) - margin, high + margin


def _scale(found: Advice, methods: list[MethodAdvice]) -> float:
    """Phases of one unit of the log."""
    assert found.log is not None
    return float(methods[0].row["log"]["lag"]) / found.log.mean if found.log.mean > 0 else 1.0


def _log(ax: Axes, found: Advice, methods: list[MethodAdvice], end: float) -> None:
    """The lags of the log at the foot of the panel as far as it reaches, and a line at their mean, in phases."""
    assert found.log is not None
    scale = _scale(found, methods)
    counts, edges = np.histogram(found.log.lags * scale, 30, (0, end * 1.02), weights=found.log.weights)
    ax.bar(
        edges[:-1],
        0.22 * counts / max(counts.max(), 1e-12),
        width=np.diff(edges),
        align="edge",
        color="#C8C8C8",
        linewidth=0,
        transform=ax.get_xaxis_transform(),
        zorder=0.5,
    )
    ax.axvline(found.log.mean * scale, color=FAINT, linewidth=1)
