"""Tables of a page: numbers with their intervals, as HTML, Markdown and CSV, to be searched and copied."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from ..base.table_formatting import rows_to_csv

SHADES = ((247, 247, 242), (156, 195, 220), (27, 94, 140))  # light to dark, of 0, ½ and 1: also in grey
DARK = 0.86  # of a shade: from here on white has more contrast than black, 4.5 or more either way
DRAFT = "DRAFT, runs are missing."
CSV = ("block", "row", "column", "value", "interval")


@dataclass(frozen=True)
class SheetCell:
    """Cell: a value, below it its interval or n, and the darkness of the cell (0 to 1; None: white)."""

    value: str
    below: str = ""
    shade: float | None = None
    bold: bool = False


def iqm_cell(row: Mapping[str, Any], shade: float | None = None, bold: bool = False, digits: int = 2) -> SheetCell:
    """Cell of a row of a table of scores: its IQM, and below it the interval, or the runs if too few for one."""
    ends = "" if row["iqm_low"] is None else f"[{row['iqm_low']:.{digits}f}, {row['iqm_high']:.{digits}f}]"
    dots = ", ".join(f"{x:.{digits}f}" for x in row.get("dots", {}).get("iqm", ()))
    return SheetCell(f"{row['iqm']:.{digits}f}", f"({dots})" if dots else ends, shade, bold)


@dataclass(frozen=True)
class Block:
    """One table: cells [rows, columns] with their names; `corner` is the heading of the names."""

    title: str  # over it, if there are several
    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[SheetCell]]]


@dataclass(frozen=True)
class Sheet:
    """Tables that belong together. `about`: n, intervals and scale, as in the second line of a figure."""

    title: str
    about: Sequence[str]
    blocks: Sequence[Block]
    draft: bool = False  # runs are missing

    @property
    def lines(self) -> list[str]:
        """Lines under the tables."""
        lines = [f"{text[0].upper()}{text[1:]}." for text in self.about if text]
        return [DRAFT, *lines] if self.draft else lines

    def markdown(self) -> str:
        parts = []
        for block in self.blocks:
            if len(self.blocks) > 1:
                parts.append(f"*{_plain(block.title)}*\n")
            heads = [block.corner, *block.columns]
            table = [heads, ["---", *["---:"] * len(block.columns)]]
            table += [[label, *map(_markdown_cell, entries)] for label, entries in block.rows]
            parts += ["\n".join(f"| {' | '.join(map(_plain, line))} |" for line in table), ""]
        return "\n".join([*parts, f"*{_plain(' '.join(self.lines))}*"])

    def html(self) -> str:
        """Elements for a page with the style of the reports; every text is escaped."""
        return "\n".join([*map(self._block, self.blocks), f'<p class="about">{escape(" ".join(self.lines))}</p>'])

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        return f"<h3>{escape(self.title)}</h3>\n{self.html()}"

    def _block(self, block: Block) -> str:
        title = f"<h3>{escape(block.title)}</h3>\n" if len(self.blocks) > 1 else ""
        heads = "".join(f'<th scope="col" class="num">{_unbroken(name)}</th>' for name in block.columns)
        body = "\n".join(
            f'<tr><th scope="row">{escape(label)}</th>{"".join(map(_cell, entries))}</tr>'
            for label, entries in block.rows
        )
        return (
            f'{title}<div class="scroll" tabindex="0" role="region" aria-label="{escape(block.title or block.corner)}">'
            f'<table class="sheet">\n<thead><tr><th scope="col">{escape(block.corner)}</th>'
            f"{heads}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
        )

    def to_csv(self) -> str:
        """A line per cell: block, row, column, value, interval."""
        lines = [
            (block.title, label, column, entry.value, entry.below)
            for block in self.blocks
            for label, entries in block.rows
            for column, entry in zip(block.columns, entries, strict=True)
        ]
        return rows_to_csv([dict(zip(CSV, line, strict=True)) for line in lines], CSV)


def _cell(entry: SheetCell) -> str:
    below = f"<br><small>{_unbroken(entry.below)}</small>" if entry.below else ""
    value = f"<b>{escape(entry.value)}</b>" if entry.bold else escape(entry.value)
    style = ""
    if entry.shade is not None:
        style = f' style="background:{colour(entry.shade)};color:{text_colour(entry.shade)}"'
    return f'<td class="num"{style}>{value}{below}</td>'


def _unbroken(text: str) -> str:
    """Return HTML in which a line breaks between an interval and n, and never inside one of them."""
    return re.sub(r"(?<=,) | (?==)|(?<==) | (?=to )|(?<=to) ", "&nbsp;", escape(text))


def text_colour(shade: float) -> str:
    """Return white or black, whichever is easier to read on a shade."""
    return "#fff" if shade > DARK else "#000"


def colour(shade: float) -> str:
    """Return `#rrggbb` between the `SHADES`, of a number clipped to 0..1."""
    channels = [round(np.interp(shade, (0, 0.5, 1), channel)) for channel in zip(*SHADES, strict=True)]
    return f"#{bytes(channels).hex()}"


def _markdown_cell(entry: SheetCell) -> str:
    value = f"**{entry.value}**" if entry.bold else entry.value
    return f"{value} {entry.below}".rstrip()


def _plain(text: str) -> str:
    """Return Markdown that no bar or line end can break out of."""
    return " ".join(text.replace("|", "\\|").split())
