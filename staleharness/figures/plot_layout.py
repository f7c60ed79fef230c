"""Page of a figure: settings, panels, axes and names shared by all figures. No pyplot, no global state.

`width` is in inches: 7 is a printed page, 3.5 a column or a phone; panels wrap accordingly.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ..base.text_formatting import printable
from ..errors import shorten
from ..statistics.table import Table
from .captions import run_facts
from .palette import Style, text_colour

PAGE, COLUMN = 7.0, 3.5  # inches
FORMS = {"wide": PAGE, "narrow": COLUMN}  # widths of a figure on a page; narrow: for phones
NARROWEST = 1.6  # inches: the least width of a panel
LETTER = 0.065  # inches: the width of a letter of a row's name
LEGEND_ROWS, LEGEND_ROW = 3, 0.15  # rows that fit below any panels; inches of each further row
TITLE, LEAST_TITLE = 9.0, 7.5  # points
TITLE_HEIGHT = 12.0  # points at the top, left out by a page that states the title itself
INK, FAINT = "#222222", "#6B6B6B"
SETTINGS = matplotlib.rc_params_from_file(Path(__file__).with_name("figures.mplstyle"), use_default_template=False)
METADATA: dict[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


@contextlib.contextmanager
def plot_settings() -> Iterator[None]:
    """Apply our settings to matplotlib's defaults, whatever the user has configured, and restore them afterwards."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        # A name may hold letters that the font lacks; they print as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def to_bytes(figure: Figure, kind: str, source: str = "", title: bool = True) -> bytes:
    """Return the figure as `svg`, `pdf` or `png`: the same bytes for the same figure, on any day.

    `source`, stored in the metadata, identifies what the figure was drawn from. Without `title`, for a page that states
    it above, the figure is cropped below its title, and has none.
    """
    stream = io.BytesIO()
    metadata = METADATA[kind] | ({"Subject" if kind == "pdf" else "Source": source} if source else {})
    part = None
    if not title:
        retitle(figure, "")
        width, height = figure.get_size_inches()
        part = Bbox.from_bounds(0, 0, width, height - TITLE_HEIGHT / 72)
    with plot_settings():
        figure.savefig(stream, format=kind, metadata=metadata, bbox_inches=part)
    # matplotlib names the font it has; a reader's machine may have another, and Verdana is as wide
    return stream.getvalue().replace(b"font-family: 'DejaVu Sans'", b"font-family: 'DejaVu Sans', Verdana, sans-serif")


def reduce_colours(png: bytes) -> bytes:
    """Return a PNG in 256 colours, those of small marks included, with its metadata: a third of the size."""
    with Image.open(io.BytesIO(png)) as image:
        about = PngInfo()
        for key, text in image.info.items():
            if isinstance(text, str):
                about.add_text(str(key), text)
        stream = io.BytesIO()
        # An octree: median cut gives most colours to large areas, and turns a small blue mark green.
        palette_image = image.convert("RGB").quantize(256, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        palette_image.save(stream, "png", optimize=True, dpi=image.info["dpi"], pnginfo=about)
    return stream.getvalue()


def retitle(figure: Figure, title: str) -> None:
    """Replace the title of a finished figure; a long one is set smaller, a longer one ends in an ellipsis."""
    room = figure.get_figwidth() * 13  # letters
    size = max(LEAST_TITLE, TITLE * min(1.0, room / max(1, len(title))))
    for text in figure.texts:
        if text.get_gid() == "figure-title":
            text.set_text(shorten(printable(title), int(room * TITLE / size)))
            text.set_fontsize(size)


def columns_for(width: float, limit: int, least: float = 0.0) -> int:
    """Number of panels side by side: `limit`, or fewer if they do not fit. least: inches that a panel takes, names
    included."""
    return max(1, min(limit, int(width / max(NARROWEST, least))))


@contextlib.contextmanager
def panels(
    title: str, subtitle: str, groups: Sequence[object], table: Table, width: float, height: float, columns: int = 0
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with one panel of `height` inches per group, in rows of `columns` (0: up to four, if they fit); title,
    subtitle and facts about the runs at the top left. DRAFT is written across it if runs of the table are missing.

    Panels of equal groups share a y axis, labelled at the left edge only.
    """
    columns = columns or columns_for(width, min(4, len(groups)))
    rows = math.ceil(len(groups) / columns)
    letters = int(width * 19)  # in a line
    lines = [title, *_wrap(subtitle, letters), *_wrap(run_facts(table), letters)]
    with plot_settings():
        figure = Figure(figsize=(width, rows * height + 0.14 * len(lines) + 0.5))
        figure.set_layout_engine("constrained", w_pad=0.06, h_pad=0.05)
        axes: list[Axes] = []
        for i, group in enumerate(groups):
            first = groups.index(group)
            axes.append(figure.add_subplot(rows, columns, i + 1, sharey=axes[first] if first < i else None))
            if i % columns and group == groups[i - 1]:
                axes[-1].tick_params(labelleft=False)
        # The layout leaves room for the faint text; the title stands over its first, empty line.
        figure.suptitle("\n".join(["", *lines[1:]]), x=0.005, ha="left", fontsize=7, color=FAINT, linespacing=1.35)
        top = 1 - 0.03 / figure.get_figheight()
        figure.text(0.005, top, "", ha="left", va="top", fontweight="bold", gid="figure-title")
        retitle(figure, title)
        yield figure, axes
        if table.draft:
            large: dict[str, Any] = {"fontsize": 12 * width, "fontweight": "bold", "color": INK, "alpha": 0.1}
            figure.text(0.5, 0.45, "DRAFT", ha="center", va="center", rotation=18, gid="draft", **large)
        if (engine := figure.get_layout_engine()) is not None:
            engine.execute(figure)  # places everything once, for all formats
        figure.set_layout_engine(None)  # "none" would be an engine, for which matplotlib draws twice when it saves


def _wrap(text: str, width: int) -> list[str]:
    """Return lines of at most `width` letters that do not break `K = 16` in two."""
    lines = textwrap.wrap(re.sub(r" = (?=\d)", "\u00a0=\u00a0", text), width)
    return [line.replace("\u00a0", " ") for line in lines]


def label_edges(axes: Sequence[Axes], x: str, y: str) -> None:
    """Label the x axis of the lowest panel in each column and the y axis of the first one in each row."""
    grid = axes[0].get_gridspec()
    columns = grid.ncols if grid and len(axes) > 1 else 1
    for i, ax in enumerate(axes):
        if i + columns >= len(axes):
            ax.set_xlabel(x)
        if i % columns == 0:
            ax.set_ylabel(y)


def steps_axis(ax: Axes) -> None:
    """An x axis of environment steps: 0, 50k, 1.5M."""

    def short(value: float, _: int) -> str:
        for unit, letter in ((1e6, "M"), (1e3, "k")):
            if abs(value) >= unit:
                return f"{value / unit:g}{letter}"
        return f"{value:g}"

    ax.xaxis.set_major_locator(MaxNLocator(4))
    ax.xaxis.set_major_formatter(FuncFormatter(short))
    ax.set_xlim(left=0)


def percent_axis(ax: Axes, across: bool = False) -> None:
    """A y axis of shares, or an x axis (`across`): 0.25 is written 25%."""
    (ax.xaxis if across else ax.yaxis).set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:g}%"))


def short_label(label: str, width: float = COLUMN) -> str:
    """An algorithm's label, shortened to fit a figure of this width."""
    return shorten(printable(label), 34 if width < 5 else 40)


def gid(look: Style) -> str:
    """Id of an algorithm's marks, by which the report shows and hides them."""
    return f"series-{look.index}"


def legend(figure: Figure, looks: Mapping[str, Style]) -> None:
    """One legend for all panels, below them."""
    width = figure.get_figwidth()
    # A leading underscore would hide an entry, hence the space.
    names = {
        label: (" " if label.startswith("_") else "") + short_label(s.name or label, width)
        for label, s in looks.items()
    }
    lengths = [0.45 + 0.075 * len(name) for name in names.values()]  # inches, about
    per_row = len(names) if sum(lengths) < width else max(1, int(width / max(lengths)))
    # Panels leave room for a short legend; what a longer one needs must not be taken from them.
    beyond = max(0, math.ceil(len(names) / max(1, per_row)) - LEGEND_ROWS)
    figure.set_figheight(figure.get_figheight() + beyond * LEGEND_ROW)
    # matplotlib fills columns; people read rows.
    looks = {label: looks[label] for i in range(per_row) for label in list(looks)[i::per_row]}
    handles = [Line2D([], [], color=s.colour, dashes=s.dashes, linewidth=2) for s in looks.values()]
    box = figure.legend(
        handles,
        [names[label] for label in looks],
        loc="outside lower left",
        ncols=per_row,
        frameon=False,
        handlelength=2.4 if any(s.dashes for s in looks.values()) else 1.4,  # to see dashes
        columnspacing=1.4,
    )
    for line, text, look in zip(box.get_lines(), box.get_texts(), looks.values(), strict=True):
        line.set_gid(gid(look))
        text.set_gid(gid(look))


def names_at_ends(
    ax: Axes, ends: Sequence[tuple[str, float, float]], looks: Mapping[str, Style], height: float
) -> None:
    """Write each algorithm's name right of its last point (x, y), pushed apart where they would overlap.

    `height` of the panel in inches.
    """
    low, high = ax.get_ylim()
    least = 0.15 / height  # a line of text as a share of the panel's height
    order = sorted(ends, key=lambda e: (e[2], e[0]))
    heights: list[float] = []
    for _, _, y in order:
        at = (y - low) / (high - low)
        heights.append(max(at, heights[-1] + least) if heights else at)
    too_high = max(0.0, heights[-1] - 1.0) if heights else 0.0
    for i in range(len(heights) - 1, -1, -1):
        limit = heights[i + 1] - least if i + 1 < len(heights) else heights[i] - too_high
        heights[i] = min(heights[i], limit)
    arrow = {"arrowstyle": "-", "linewidth": 0.5, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 2}
    place: dict[str, Any] = {"textcoords": "axes fraction", "annotation_clip": False, "va": "center"}
    for (label, x, y), at in zip(order, heights, strict=True):
        look = looks[label]
        font: dict[str, Any] = {"color": text_colour(look.colour), "fontweight": "bold", "gid": gid(look)}
        pen = arrow | {"color": look.colour}
        note = ax.annotate(short_label(look.name or label), (x, y), (1.025, at), arrowprops=pen, **place, **font)
        if note.arrow_patch is not None:
            note.arrow_patch.set_gid(gid(look))
