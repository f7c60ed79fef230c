"""Share of the synchronous score that is kept against the lag of the data, and score against the time of a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

from ..base.text_formatting import listing, span
from ..logs.lag_log_reader import LagLog
from ..statistics.advice import Advice, advise
from ..statistics.advice_per_method import MethodAdvice
from ..statistics.results import Results
from ..statistics.staleness_budget import KEEP
from ..statistics.table import Table
from .palette import Style, looks_of_curves, styles, text_colour, with_names
from .plot_layout import FAINT, INK, PAGE, columns_for, gid, legend, panels, percent_axis
from .plot_marks import draw_interval, draw_line, log_axis
from .registry import FIGURES

GAP = 0.1  # of the smallest distance between lags: no method's points stand further from the next one's
TOP = 1.5  # a share above this stands here with its number: drawn to scale it would squeeze all others


@FIGURES.register("share_kept")
def share_kept(results: Results, table: Table, width: float = PAGE, *, keep: float = KEEP) -> Figure:
    """The share of its synchronous IQM that a method keeps at each measured lag, a panel per environment."""
    advice = advise(results, keep=keep, score=table.settings["score"])
    looks = looks_of_curves(table, (m.curve.algorithm for m in advice.methods))
    return _panels("Share of the synchronous score that is kept", caption(advice), advice, looks, table, width)


def caption(advice: Advice) -> str:
    """Second line of the figure: n, the interval, the zero, and the methods without an answer."""
    s = advice.settings
    n = span(len(c) for m in advice.methods for c in m.curve.scores)
    zeros = " or ".join(sorted({m.curve.zero_note for m in advice.methods}))
    text = (
        f"share of the synchronous IQM of {s['measure']}, counted from {zeros} (n = {n} seeds a point); lines: not "
        f"rising with lag, straight between points; points: as measured; bars: their {s['level']:.0%} bootstrap "
        f"intervals; dashed: {100 * s['keep']:g}%"
    )
    if any((m.retention.raw > TOP).any() for m in advice.methods):
        text += f"; points with a number: above {TOP:.0%}"
    if any((m.retention.interval_of_points()[1] > TOP).any() for m in advice.methods):
        text += f"; bars are cut at {TOP:.0%}"
    if advice.refusals:
        names = sorted({f"{r.algorithm} on {r.env}" for r in advice.refusals})
        text += f"; no answer for {listing(names, 4)}"
    return text


def against_lag(ax: Axes, advice: Advice, env: str, looks: Mapping[str, Style]) -> None:
    """Draw the panel of one environment, with the lags of the log if there is one."""
    methods = advice.on(env)
    end = max(float(m.curve.lags[-1]) for m in methods)
    keep = advice.settings["keep"]
    nearest = min(np.diff(m.curve.lags).min() for m in methods)
    step = min(0.012 * end, GAP * nearest)  # so that intervals do not hide each other
    ax.axhline(keep, color=INK, linewidth=0.7, dashes=(4, 2))
    for at, method in enumerate(methods):
        look, retention = looks[method.curve.algorithm], method.retention
        shift = step * (at - (len(methods) - 1) / 2)
        draw_line(ax, look, retention.lags, retention.fit, linewidth=1.1)
        for lag, *interval in list(zip(retention.lags, *retention.interval_of_points(), strict=True))[1:]:
            draw_interval(ax, look, [lag + shift] * 2, np.minimum(interval, TOP), 2)
        draw_line(ax, look, retention.lags[1:] + shift, np.minimum(retention.raw[1:], TOP), marker=4.5, linestyle="")
        for lag, raw in zip(retention.lags[1:], retention.raw[1:], strict=True):
            if raw > TOP:
                offset, side = (5, "left") if lag < end / 2 else (-5, "right")
                pen: dict[str, Any] = {"color": text_colour(look.colour), "fontsize": "small", "gid": gid(look)}
                place: dict[str, Any] = {"textcoords": "offset points", "ha": side, "va": "center"}
                ax.annotate(f"{raw:.0%}", (lag + shift, TOP), (offset, 0), **place, **pen)
    if (log := advice.log) is not None:
        scale = float(methods[0].row["log"]["lag"]) / log.mean if log.mean > 0 else 1.0  # phases per unit of the log
        end = max(end, scale * max(log.mean, log.quantile(0.95)))
        _log(ax, log, scale, end)
    ax.set_ylim(*_span(advice.methods))  # one for all environments
    ax.set_xlim(-0.03 * end, end * 1.06)
    percent_axis(ax)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel("mean lag, phases")


def _span(methods: list[MethodAdvice]) -> tuple[float, float]:
    """Ends of the axis of shares: from 0, unless nothing comes near it."""
    shares = np.concatenate([x for m in methods for x in (m.retention.raw, *m.retention.interval_of_points())])
    low, high = float(shares.min()), min(TOP, max(1.0, float(shares.max())))
    margin = 0.04 * (high - min(low, 1.0)) + 0.01
    return (low if low > 0.5 else min(0.0, low)) - margin, high + margin


def _log(ax: Axes, log: LagLog, scale: float, end: float) -> None:
    """Draw the lags of the log at the foot of the panel as far as it reaches, and a line at their mean, in phases."""
    counts, edges = np.histogram(log.lags * scale, 30, (0, end * 1.02), weights=log.weights)
    pen: dict[str, Any] = {"color": "#C8C8C8", "linewidth": 0, "zorder": 0.5, "transform": ax.get_xaxis_transform()}
    ax.bar(edges[:-1], 0.22 * counts / max(counts.max(), 1e-12), width=np.diff(edges), align="edge", **pen)
    ax.axvline(log.mean * scale, color=FAINT, linewidth=1)


def draw_advice(advice: Advice, source: str, width: float = PAGE) -> Figure:
    """A panel per environment: the share of the synchronous IQM kept at each measured lag. With a pipeline, a second
    one below it: the score against the seconds of a step, a point per cap. `source` is named below the title."""
    looks = with_names(styles(m.curve.algorithm for m in advice.methods))
    table = Table([], [], {"sizes": advice.settings["sizes"], "dates": advice.settings["dates"], "scale": source})
    title, subtitle = "What staleness costs", caption(advice)
    if advice.caps:
        title += ", and what it buys"
        subtitle += "; time: a simulated pipeline, a point per cap (named above), as far as the lags of the runs reach"
    if advice.log:
        subtitle += f"; grey: lags of {advice.log.file}, up to 95% of them, and their mean"
    return _panels(title, subtitle, advice, looks, table, width)


def _panels(
    title: str, subtitle: str, advice: Advice, looks: Mapping[str, Style], table: Table, width: float
) -> Figure:
    """A panel of shares per environment and, with a pipeline, a second one below it of scores against time."""
    envs, with_time = advice.envs, bool(advice.caps)
    whole_row = min(3, len(envs))
    columns = columns_for(width, whole_row)
    places = [(env, quantity) for quantity in ("lag", "time")[: 1 + with_time] for env in envs]
    # Too narrow for a row of all environments: one row for each, with its two panels.
    in_pairs = with_time and columns < whole_row
    if in_pairs:
        places, columns = sorted(places, key=lambda place: envs.index(place[0])), 2
    groups = ["share" if quantity == "lag" else env for env, quantity in places]
    with panels(title, subtitle, groups, table, width, 1.9, columns) as (figure, axes):
        for i, (ax, (env, quantity)) in enumerate(zip(axes, places, strict=True)):
            ax.set_title(env, loc="left", pad=14 if quantity == "time" else None)  # above the names of the caps
            draw, label = (against_lag, "share kept") if quantity == "lag" else (_against_time, "IQM of the score")
            draw(ax, advice, env, looks)
            ax.set_ylabel(label if in_pairs or i % columns == 0 else "")
        legend(figure, looks)
    return figure


def _against_time(ax: Axes, advice: Advice, env: str, looks: Mapping[str, Style]) -> None:
    methods = advice.on(env)
    for at, method in enumerate(methods):
        look = looks[method.curve.algorithm]
        points = sorted((p for p in method.row["caps"] if p["kept"] is not None), key=lambda p: p["step_seconds"])
        x = np.array([p["step_seconds"] for p in points]) * 1.012 ** (at - (len(methods) - 1) / 2)
        for xi, point in zip(x, points, strict=True):
            cap = "none" if point["cap"] is None else f"{point['cap']:g}"
            draw_interval(ax, look, [xi, xi], np.percentile(method.scores[cap], (2.5, 97.5)), 2, 0.25)
        draw_line(ax, look, x, [p["score"] for p in points], linewidth=1.1, marker=4.5)
    log_axis(ax)
    seconds = [c.step_seconds for c in advice.caps]
    ax.set_xlim(min(seconds) / 1.15, max(seconds) * 1.15)
    ax.yaxis.set_major_locator(MaxNLocator(5))
    ax.set_xlabel("seconds a step")
    _caps(ax, advice)


def _caps(ax: Axes, advice: Advice) -> None:
    """Label the caps above the panel; those too close for two labels share one."""
    left, right = np.log(ax.get_xlim())
    groups: list[tuple[float, list[str]]] = []
    for cap in sorted(advice.caps, key=lambda c: -c.step_seconds):
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
