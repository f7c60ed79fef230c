"""Advice as a picture: the score that is kept against the lag of the data, and the score against the time of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..statistics.advice import Advice
from ..statistics.advised import Method
from ..statistics.table import Table
from .canvas import FAINT, INK, PAGE, columns_for, gid, legend, panels, percent_axis
from .palette import Style, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_advice(found: Advice, source: str, width: float = PAGE) -> Figure:
    """A panel per environment: the share of the synchronous IQM kept at each measured lag. Where there is a pipeline, a
    second one below it: the score against the seconds of a step, a point per cap. `source` is named below the title.
    """
    envs, s = found.envs, found.settings
    looks = styles(m.curve.algorithm for m in found.methods)
    both = bool(found.caps)
    table = Table([], [], {"sizes": s["sizes"], "dates": s["dates"], "scale": source})
    ns = sorted({len(c) for m in found.methods for c in m.curve.scores})
    n = " to ".join(str(i) for i in dict.fromkeys((ns[0], ns[-1])))
    zeros = " or ".join(sorted({m.curve.zero_note for m in found.methods}))
    subtitle = (
        f"share of the synchronous IQM of {s['measure']} above {zeros} (n = {n} seeds a point); lines: not rising with "
        f"lag, straight between points; points: as measured; bars: {s['level']:.0%} bootstrap interval of the line; "
        f"dashed: {s['keep']:.0%}"
    )
    if both:
        subtitle += "; time: a simulated pipeline, a point per cap (named above), as far as the lags of the runs reach"
    if found.log:
        subtitle += f"; grey: lags of {found.log.file}, up to 95% of them, and their mean"
    columns = columns_for(width, min(3, len(envs)))
    places = [(env, what) for what in ("lag", "time")[: 1 + both] for env in envs]
    groups = ["share" if what == "lag" else env for env, what in places]
    title = "What staleness costs" + (", and what it buys" if both else "")
    with panels(title, subtitle, groups, table=table, columns=columns, height=1.9, width=width) as (
        figure,
        axes,
    ):
        for i, (ax, (env, what)) in enumerate(zip(axes, places, strict=True)):
            ax.set_title(env, loc="left")
            if what == "lag":
                _against_lag(ax, found, env, looks)
                ax.set_ylabel("" if i % columns else "share kept")
            else:
                _against_time(ax, found, env, looks)
                ax.set_ylabel("" if i % columns else "IQM of the score")
        legend(figure, looks)
    return figure


def _against_lag(ax: Axes, found: Advice, env: str, looks: dict[str, Style]) -> None:
    methods = found.on(env)
    end = max(float(m.curve.lags[-1]) for m in methods)
    keep = found.settings["keep"]
    ax.axhline(keep, color=INK, linewidth=0.7, dashes=(4, 2))
    for at, method in enumerate(methods):
        look, share = looks[method.curve.algorithm], method.kept
        shift = 0.012 * end * (at - (len(methods) - 1) / 2)  # so that intervals do not hide each other
        ax.plot(share.lags, share.fitted, color=look.colour, dashes=look.dashes, linewidth=1.1, gid=gid(look))
        for point in method.row["points"][1:]:
            x = [point["lag"] + shift] * 2
            bar = [point["kept_low"], point["kept_high"]]
            ax.plot(x, bar, color=look.colour, linewidth=2, alpha=0.35, gid=gid(look))
        ax.plot(
            share.lags[1:] + shift, share.raw[1:], color=look.colour, linestyle="", marker=look.marker, markersize=4.5,
            markeredgecolor="white", markeredgewidth=0.5, gid=gid(look),
        )  # fmt: skip
    if found.log is not None:
        end = max(end, _scale(found, methods) * max(found.log.mean, found.log.quantile(0.95)))
        _log(ax, found, methods, end)
    ax.set_ylim(*_span(found.methods))  # one for all environments
    ax.set_xlim(-0.03 * end, end * 1.06)
    percent_axis(ax)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel("mean lag, phases")


def _span(methods: list[Method]) -> tuple[float, float]:
    """Ends of the axis of shares: from 0, but where nothing comes near it."""
    low = min(min(float(m.kept.raw.min()), *(p["kept_low"] for p in m.row["points"])) for m in methods)
    high = max(1.0, *(float(m.kept.raw.max()) for m in methods))
    margin = 0.04 * (high - min(low, 1.0)) + 0.01
    return (low if low > 0.5 else min(0.0, low)) - margin, high + margin


def _scale(found: Advice, methods: list[Method]) -> float:
    """Phases of one unit of the log."""
    assert found.log is not None
    return float(methods[0].row["log"]["lag"]) / found.log.mean if found.log.mean > 0 else 1.0


def _log(ax: Axes, found: Advice, methods: list[Method], end: float) -> None:
    """The lags of the log at the foot of the panel as far as it reaches, and a line at their mean, in phases."""
    assert found.log is not None
    scale = _scale(found, methods)
    counts, edges = np.histogram(found.log.lags * scale, 30, (0, end * 1.02), weights=found.log.weights)
    ax.bar(
        edges[:-1], 0.22 * counts / max(counts.max(), 1e-12), width=np.diff(edges), align="edge", color="#C8C8C8",
        linewidth=0, transform=ax.get_xaxis_transform(), zorder=0.5,
    )  # fmt: skip
    ax.axvline(found.log.mean * scale, color=FAINT, linewidth=1)


def _against_time(ax: Axes, found: Advice, env: str, looks: dict[str, Style]) -> None:
    methods = found.on(env)
    for at, method in enumerate(methods):
        look = looks[method.curve.algorithm]
        there = sorted(
            (p for p in method.row["caps"] if p["kept"] is not None), key=lambda p: p["step_seconds"]
        )
        x = np.array([p["step_seconds"] for p in there]) * 1.012 ** (at - (len(methods) - 1) / 2)
        y = [p["score"] for p in there]
        for xi, point in zip(x, there, strict=True):
            bar = np.percentile(method.scores[_name(point["cap"])], (2.5, 97.5))
            ax.plot([xi, xi], bar, color=look.colour, linewidth=2, alpha=0.25, gid=gid(look))
        ax.plot(
            x, y, color=look.colour, dashes=look.dashes, linewidth=1.1, marker=look.marker, markersize=4.5,
            markeredgecolor="white", markeredgewidth=0.5, gid=gid(look),
        )  # fmt: skip
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    seconds = [c.step_seconds for c in found.caps]
    ax.set_xlim(min(seconds) / 1.15, max(seconds) * 1.15)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel("seconds a step")
    _caps(ax, found)


def _caps(ax: Axes, found: Advice) -> None:
    """The caps above the panel; those that stand too close for two labels share one."""
    left, right = np.log(ax.get_xlim())
    groups: list[tuple[float, list[str]]] = []
    for cap in sorted(found.caps, key=lambda c: -c.step_seconds):
        at = np.log(cap.step_seconds)
        if groups and groups[-1][0] - at < 0.07 * (right - left):
            groups[-1][1].append(cap.name)
        else:
            groups.append((at, [cap.name]))
    top = ax.secondary_xaxis("top")
    names = [names[0] + ("" if len(names) == 1 else f"–{names[-1]}") for _, names in groups]
    top.set_xticks([float(np.exp(at)) for at, _ in groups], labels=names)
    top.xaxis.set_minor_locator(NullLocator())
    top.tick_params(length=2, labelsize=6, pad=1, colors=FAINT)
    top.spines["top"].set_visible(False)


def _name(cap: float | None) -> str:
    return "none" if cap is None else f"{cap:g}"
