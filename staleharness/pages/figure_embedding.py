"""Figures as parts of a page: SVG elements, several of which can share one HTML page, with their axes for the page's
script; and a PDF of several figures."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import XAxis, YAxis
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from ..figures.plot_layout import METADATA, TITLE_HEIGHT, plot_settings

HREF = "{http://www.w3.org/1999/xlink}href"
POINTS = 72  # of an inch: the unit of an SVG


def inline_svg(svg: bytes, prefix: str, label: str, axes: Sequence[str] = ()) -> str:
    """Return an `<svg>` element that scales with the page, from a figure of `plot_layout`.

    Ids are prefixed (two figures on a page must not share any) or dropped; a group that belongs to an
    algorithm gets `data-series`, a panel `data-panel`, for the page's filters; coordinates are rounded to 0.1
    points. `axes` (`hover_axes` of the figure) become the attribute `data-axes` of the panels. The tree is rewritten
    as a tree, so that no text in it, whoever wrote it, can become an element.
    """
    root = ET.fromstring(svg)
    references = set(re.findall(rb'(?:url\(#|href="#)([^)"]+)', svg))
    for parent in list(root.iter()):
        for child in list(parent):
            name = child.tag.split("}")[-1]
            if name in ("metadata", "style") or child.get("id") == "figure-title":
                parent.remove(child)
    panels = [g for group in root for g in group if re.fullmatch(r"(axes_|panel-)\d+", g.get("id", ""))]
    for panel, about in zip(panels, axes if len(axes) == len(panels) else (), strict=False):
        panel.set("data-axes", about)
    for element in root.iter():
        element.tag = element.tag.split("}")[-1]
        if (target := element.attrib.pop(HREF, None)) is not None:
            element.set("href", f"#{prefix}{target[1:]}" if target.startswith("#") else target)
        if (clip := element.get("clip-path")) is not None:
            element.set("clip-path", clip.replace("url(#", f"url(#{prefix}"))
        identity = element.attrib.pop("id", "")
        if match := re.fullmatch(r"(series|panel)-(\d+)", identity):
            element.set(f"data-{match[1]}", match[2])
        elif identity.encode() in references:
            element.set("id", prefix + identity)
        for key in ("d", "points"):
            if (path := element.get(key)) is not None:
                numbers = re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), path)
                element.set(key, " ".join(numbers.split()))
    x, y, width, height = (float(v) for v in root.attrib.pop("viewBox").split())
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("viewBox", f"{x:g} {y + TITLE_HEIGHT:g} {width:g} {height - TITLE_HEIGHT:g}")
    root.set("role", "img")
    root.set("aria-label", label)
    return ET.tostring(root, encoding="unicode")


def hover_axes(figure: Figure) -> list[str]:
    """JSON per panel, in the order in which they are drawn: `box` [left, top, right, bottom] in points from the upper
    left, `title`, and `x` and `y` as {ends: [first, last], label, log, unit, names: [[place, text]]}; absent ones are
    left out. `unit` is the suffix of a tick's number, `names` are given where ticks have a text of their own.
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
        about |= {"x": _axis(ax.xaxis, panels), "y": _axis(ax.yaxis, panels)}
        out.append(json.dumps(about, ensure_ascii=False, separators=(",", ":")))
    return out


def _axis(axis: XAxis | YAxis, panels: Sequence[Axes]) -> dict[str, Any]:
    about: dict[str, Any] = {"ends": [_short(end) for end in axis.get_view_interval()]}
    if label := _label(axis, panels):
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


def _label(axis: XAxis | YAxis, panels: Sequence[Axes]) -> str:
    """Label of an axis: its own, or that at the edge of its column or row, or the only one of the figure."""

    def edge(ax: Axes) -> float:
        return float(ax.get_position().x0 if axis.axis_name == "x" else ax.get_position().y1)

    texts = {ax: text for ax in panels if (text := getattr(ax, f"{axis.axis_name}axis").get_label_text())}
    neighbours = [text for ax, text in texts.items() if np.isclose(edge(ax), edge(axis.axes), atol=0.01)]
    distinct = list(dict.fromkeys(texts.values()))
    return texts.get(axis.axes) or (neighbours[-1] if neighbours else distinct[0] if len(distinct) == 1 else "")


def _short(value: float) -> float:
    return float(f"{value:.6g}")


class PdfBook:
    """A PDF with a figure on each page: fonts are subset once for all pages, because that takes longer than drawing."""

    def __init__(self) -> None:
        self._stream = io.BytesIO()
        with plot_settings():
            self._pages: Any = PdfPages(self._stream, metadata=METADATA["pdf"])
        self.count = 0

    def add(self, figure: Figure) -> int:
        """Draw the figure on a page of its own. Returns the page's number, from 1."""
        with plot_settings():
            self._pages.savefig(figure)
        self.count += 1
        return self.count

    def close(self) -> bytes:
        """Bytes of the file: the same for the same figures, on any day."""
        self._pages.close()
        return self._stream.getvalue()
