"""Advice as a picture: the score that is kept against the lag of the data, and the score against the time of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..statistics.advice import Advice
from ..statistics.labels import display_label
from ..statistics.table import Table
from .canvas import FAINT, PAGE, columns_for, gid, legend, panels
from .palette import Style, styles
from .share_kept import against_lag, caption

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_advice(found: Advice, source: str, width: float = PAGE) -> Figure:
    """A panel per environment: the share of the synchronous IQM kept at each measured lag. Where there is a pipeline, a
    second one below it: the score against the seconds of a step, a point per cap. `source` is named below the title.
    """
    envs, s = found.envs, found.settings
    looks = {
        label: replace(look, name=display_label(label))
        for label, look in styles(m.curve.algorithm for m in found.methods).items()
    }
    both = bool(found.caps)
    table = Table([], [], {"sizes": s["sizes"], "dates": s["dates"], "scale": source})
    subtitle = caption(found)
    if both:
        subtitle += "; time: a simulated pipeline, a point per cap (named above), as far as the lags of the runs reach"
    if found.log:
        subtitle += f"; grey: lags of {found.log.file}, up to 95% of them, and their mean"
    columns = columns_for(width, min(3, len(envs)))
    places = [(env, what) for what in ("lag", "time")[: 1 + both] for env in envs]
    groups = ["share" if what == "lag" else env for env, what in places]
    title = "What staleness costs" + (", and what it buys" if both else "")
    with panels(title, subtitle, groups, table=table, columns=columns, height=1.9, width=width) as (figure, axes):
        for i, (ax, (env, what)) in enumerate(zip(axes, places, strict=True)):
            ax.set_title(env, loc="left")
            if what == "lag":
                against_lag(ax, found, env, looks)
                ax.set_ylabel("" if i % columns else "share kept")
            else:
                _against_time(ax, found, env, looks)
                ax.set_ylabel("" if i % columns else "IQM of the score")
        legend(figure, looks)
    return figure


def _against_time(ax: Axes, found: Advice, env: str, looks: dict[str, Style]) -> None:
    methods = found.on(env)
    for at, method in enumerate(methods):
        look = looks[method.curve.algorithm]
        there = sorted((p for p in method.row["caps"] if p["kept"] is not None), key=lambda p: p["step_seconds"])
        x = np.array([p["step_seconds"] for p in there]) * 1.012 ** (at - (len(methods) - 1) / 2)
        y = [p["score"] for p in there]
        for xi, point in zip(x, there, strict=True):
            bar = np.percentile(method.scores[_name(point["cap"])], (2.5, 97.5))
            ax.plot([xi, xi], bar, color=look.colour, linewidth=2, alpha=0.25, gid=gid(look))
        ax.plot(
            x,
            y,
            color=look.colour,
            dashes=look.dashes,
            linewidth=1.1,
            marker=look.marker,
            markersize=4.5,
            markeredgecolor="white",
            markeredgewidth=0.5,
            gid=gid(look),
        )
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
