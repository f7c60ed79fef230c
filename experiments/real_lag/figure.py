"""The two pictures of the study: lags of each load, and the scores that come of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from compare import interval, lags
from design import ON_POLICY, VARIANTS
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from staleharness.figures.plot_layout import COLUMN, FAINT, PAGE, plot_settings, to_bytes
from staleharness.statistics.method_labels import display_label

STYLES = {  # colours of Okabe and Ito
    ON_POLICY: ("#888888", "v", "without lag"),
    "recorded": ("#222222", "o", "recorded: processes that race"),
    "same seed": ("#E69F00", "P", "replayed, same seed"),
    "fresh seed": ("#56B4E9", "s", "replayed, fresh seeds"),
    "pipeline": ("#009E73", "^", "fitted pipeline model"),
    "uniform": ("#D55E00", "D", "uniform buffer, equal mean lag"),
}
MODELS = ("recorded", "pipeline", "uniform")  # a replay's histogram is the recorded one
BARS = 30  # of more lags than these a histogram is an outline
Panels = dict[tuple[str, str], Axes]  # by task and load


def draw_lags(frame: pd.DataFrame, width: float = PAGE) -> bytes:
    """A PNG, a panel per task and load: shares of the decisions by lag, over all methods and seeds."""
    counts = lags(frame)
    with plot_settings():
        figure, panels = _panels(frame, width, 1.45)
        for (task, load), ax in panels.items():
            mine = counts[(counts["task"] == task) & (counts["load"] == load)].set_index("way")
            widest = max(map(len, mine["histogram"]))
            for i, way in enumerate(MODELS):
                if way in mine.index:
                    shares, mean = np.array(mine.loc[way, "histogram"]), mine.loc[way, "mean"]
                    if widest > BARS:
                        ax.stairs(shares, np.arange(len(shares) + 1) - 0.5, color=STYLES[way][0])
                    else:
                        ax.bar(np.arange(len(shares)) + (i - 1) * 0.28, shares, 0.28, color=STYLES[way][0])
                    top = ax.get_xaxis_transform()
                    ax.plot([mean], [0.97], "v", color=STYLES[way][0], ms=4, transform=top, clip_on=False)
            ax.set(
                xlim=(-0.6, widest - 0.4),
                ylim=(0, 0.5 if widest > BARS else 1),
                xlabel="lag in phases (triangles: means)",
            )
            ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        caption = f"all decisions of {_span(frame, ['task', 'load', 'way'])} runs a load, over methods and seeds"
        return _finish(figure, panels, "Lag, recorded and modelled", caption, "share of decisions", MODELS)


def draw_scores(frame: pd.DataFrame, width: float = PAGE) -> bytes:
    """A PNG, a panel per task and load: final scores of each method, way by way, with Student's 95 % intervals."""
    variants = (ON_POLICY, *VARIANTS)
    with plot_settings():
        figure, panels = _panels(frame, width, 1.9)
        for (task, load), ax in panels.items():
            mine = frame[(frame["task"] == task) & frame["load"].isin([load, ""])]
            methods = list(dict.fromkeys(mine["method"]))
            for (place, method), (i, way) in ((m, w) for m in enumerate(methods) for w in enumerate(variants)):
                scores = mine[(mine["way"] == way) & (mine["method"] == method)]["score"].tolist()
                if scores:
                    _one(ax, place + (i - (len(variants) - 1) / 2) * 0.14, scores, way)
            ax.axhline(mine["untrained"].mean(), color=FAINT, lw=0.7, ls=(0, (3, 2)))
            ax.set_xticks(range(len(methods)), list(map(display_label, methods)))
            ax.set_xlim(-0.5, len(methods) - 0.5)
        caption = (
            f"mean over n = {_span(frame, ['task', 'load', 'way', 'method'])} seeds, dots: the runs, bars: Student's "
            "95% interval of three runs or more; dashed: the untrained policy"
        )
        return _finish(figure, panels, "Final score, by where lag comes from", caption, "final score", variants)


def _span(frame: pd.DataFrame, keys: Sequence[str]) -> str:
    """Number of runs in a cell, in words."""
    sizes = frame.groupby(keys).size()
    return " to ".join(dict.fromkeys(str(size) for size in (sizes.min(), sizes.max())))


def _one(ax: Axes, x: float, scores: Sequence[float], way: str) -> None:
    """A mean with its interval, of two runs none, and each run faintly."""
    colour, marker, _ = STYLES[way]
    if len(scores) > 2:
        ax.plot([x, x], interval(scores), color=colour, lw=1.1)
    ax.plot([x] * len(scores), scores, ls="", marker=".", ms=2.5, mew=0, color=colour, alpha=0.55)
    ax.plot([x], [np.mean(scores)], marker=marker, color=colour, ms=4)


def _panels(frame: pd.DataFrame, width: float, height: float) -> tuple[Figure, Panels]:
    """A panel per task and load, side by side where there is room; one y axis per task."""
    loaded = frame[frame["load"] != ""]
    places = list(dict.fromkeys(zip(loaded["task"], loaded["load"], strict=True)))
    columns = 1 if width <= COLUMN else min(3, len(places))
    rows = math.ceil(len(places) / columns)
    figure = Figure(figsize=(width, rows * height + (1.0 if width <= COLUMN else 0.6)))
    figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.05)
    panels: Panels = {}
    for i, (task, load) in enumerate(places):
        same = next((ax for (other, _), ax in panels.items() if other == task), None)
        panels[task, load] = figure.add_subplot(rows, columns, i + 1, sharey=same)
        panels[task, load].set_title(f"{task}: {load}", loc="left")
    return figure, panels


def _finish(figure: Figure, panels: Panels, title: str, caption: str, y: str, variants: Sequence[str]) -> bytes:
    entries = 1 if figure.get_figwidth() <= COLUMN else 3
    columns = min(entries, len(panels))
    for i, ax in enumerate(panels.values()):
        if i % columns == 0:
            ax.set_ylabel(y)
        else:
            ax.tick_params(labelleft=False)
    handles = [
        Line2D([], [], color=colour, marker=marker, ms=4, lw=1.1, label=name)
        for colour, marker, name in map(STYLES.__getitem__, variants)
    ]
    figure.legend(handles=handles, loc="outside lower left", ncols=entries, frameon=False)
    lines = textwrap.wrap(caption, int(figure.get_figwidth() * 19))
    figure.set_figheight(figure.get_figheight() + 0.14 * len(lines))
    # The layout leaves room for the faint text; the title stands over its first, empty line.
    figure.suptitle("\n".join(["", *lines]), x=0.005, ha="left", fontsize=7, color=FAINT, linespacing=1.35)
    top = 1 - 0.03 / figure.get_figheight()
    figure.text(0.005, top, title, ha="left", va="top", fontsize=9, fontweight="bold")
    return to_bytes(figure, "png")
