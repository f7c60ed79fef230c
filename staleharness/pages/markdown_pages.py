"""Parts of Markdown pages: links, pictures, anchors and sections."""

from __future__ import annotations

import posixpath
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markupsafe import Markup

LINK = re.compile(r"\[([^\]]+)\]\(([\w./-]+)(#[\w-]+)?\)")


def prose(text: str, folder: str = "") -> Markup:
    """HTML of a text of Markdown that holds links and code alone. Its links are relative to `folder`, which is relative
    to the page."""
    from markupsafe import Markup, escape

    def link(match: re.Match[str]) -> str:
        return f'<a href="{posixpath.normpath(posixpath.join(folder, match[2]))}{match[3] or ""}">{match[1]}</a>'

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", LINK.sub(link, str(escape(text)))))


def picture_file(name: str, form: str = "wide", kind: str = "png") -> str:
    """File of a figure in its `wide` or `narrow` form."""
    return f"{name}.{kind}" if form == "wide" else f"{name}_{form}.{kind}"


def picture(text: str, name: str, folder: str = "") -> str:
    """Picture in Markdown, with its narrow form on narrow screens; `text` is its alternative."""
    wide, narrow = (folder + picture_file(name, form) for form in ("wide", "narrow"))
    return (
        f'<picture><source media="(max-width: 620px)" srcset="{narrow}">'
        f'<img src="{wide}" alt="{escape(text)}"></picture>'
    )


def anchor(heading: str) -> str:
    """Anchor of a heading of Markdown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def read_page(path: Path) -> str:
    """Read the text of a page; empty where there is none."""
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def sections_on_page(path: Path) -> dict[str, str]:
    """Read the sections of a page: heading -> text below it."""
    parts = read_page(path).split("\n## ")[1:]
    return {heading: text for heading, _, text in (part.partition("\n") for part in parts)}
