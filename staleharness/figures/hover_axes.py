"""Axes of a figure's panels as a page needs them to tell values from places in a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import FixedLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

POINTS = 72  # of an inch: the unit of an SVG


def hover_axes(figure: Figure) -> list[str]:
    """JSON per panel, in the order in which they are drawn: `box` [left, top, right, bottom] in points from the upper
    left, `title`, and `x` and `y` as {ends: [first, last], label, log, unit, names: [[place, text]]}; of these only
    what there is. `unit` is what a tick's number ends in, `names` stand where ticks have a text of their own.
    """
    panels = sorted(figure.axes, key=lambda ax: ax.get_zorder())
    width, height = (POINTS * inches for inches in figure.get_size_inches())
    out = []
    for ax in panels:
        place = ax.get_position()
        left, right = place.x0 * width, place.x1 * width
        top, bottom = (1 - place.y1) * height, (1 - place.y0) * height
        about: dict[str, Any] = {"box": [round(float(v), 1) for v in (left, top, right, bottom)]}
        if title := ax.get_title(loc="left"):
            about["title"] = " ".join(title.split())
        for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
            about[name] = _axis(axis, name, ax, panels)
        out.append(json.dumps(about, ensure_ascii=False, separators=(",", ":")))
    return out


def _axis(axis: Axis, name: str, ax: Axes, panels: Sequence[Axes]) -> dict[str, Any]:
    first, last = ax.get_xlim() if name == "x" else ax.get_ylim()
    about: dict[str, Any] = {"ends": [_short(first), _short(last)]}
    if label := _label(name, ax, panels):
        about["label"] = label
    if axis.get_scale() == "log":
        about["log"] = 1
    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    if isinstance(locator, FixedLocator):
        places = [float(v) for v in locator()]
        about["names"] = [[_short(at), text] for at, text in zip(places, formatter.format_ticks(places), strict=True)]
    elif formatter.format_ticks([0.25]) == ["25%"]:
        about["unit"] = "%"
    return about


def _label(name: str, ax: Axes, panels: Sequence[Axes]) -> str:
    """Label of an axis: its own, or that at the edge of its column or row, or the only one of the figure."""
    place = ax.get_position()

    def is_beside(other: Axes) -> bool:
        if name == "x":
            return bool(np.isclose(other.get_position().x0, place.x0, atol=0.01))
        return bool(np.isclose(other.get_position().y1, place.y1, atol=0.01))

    texts = {other: other.get_xlabel() if name == "x" else other.get_ylabel() for other in panels}
    beside = [text for other, text in texts.items() if text and is_beside(other)]
    every = list(dict.fromkeys(text for text in texts.values() if text))
    return texts[ax] or (beside[-1] if beside else every[0] if len(every) == 1 else "")


def _short(value: float) -> float:
    return float(f"{value:.6g}")
