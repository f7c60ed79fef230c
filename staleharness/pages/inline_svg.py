"""Rewriting of matplotlib's SVG, so that several can stand in one HTML page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from ..figures.plot_layout import TITLE_HEIGHT

HREF = "{http://www.w3.org/1999/xlink}href"


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
        identity = element.attrib.pop("id", None)
        if identity is None:
            pass
        elif match := re.fullmatch(r"(series|panel)-(\d+)", identity):
            element.set(f"data-{match[1]}", match[2])
        elif identity.encode() in references:
            element.set("id", prefix + identity)
        for key in ("d", "points"):
            if (path := element.get(key)) is not None:
                element.set(key, " ".join(_round_numbers(path).split()))
    x, y, width, height = (float(v) for v in root.attrib.pop("viewBox").split())
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.set("viewBox", f"{x:g} {y + TITLE_HEIGHT:g} {width:g} {height - TITLE_HEIGHT:g}")
    root.set("role", "img")
    root.set("aria-label", label)
    return ET.tostring(root, encoding="unicode")


def _round_numbers(path: str) -> str:
    return re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), path)
