"""Parts that pages share: of Markdown, links, pictures, anchors and sections; of HTML, templates, style and script."""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import __version__

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

PAGE = Path(__file__).with_name("templates")  # templates, styles and scripts
SCRIPTS = ("page.js", "figures.js")
LINK = re.compile(r"\[([^\]]+)\]\(([\w./-]+)(#[\w-]+)?\)")


def prose(text: str, folder: str = "") -> Markup:
    """HTML of Markdown text that contains only links and code. Its links are relative to `folder`, which is relative
    to the page."""
    from markupsafe import Markup, escape

    def link(match: re.Match[str]) -> str:
        return f'<a href="{posixpath.normpath(posixpath.join(folder, match[2]))}{match[3] or ""}">{match[1]}</a>'

    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", LINK.sub(link, str(escape(text)))))


def picture_file(name: str, form: str = "wide", kind: str = "png") -> str:
    """File of a figure in its `wide` or `narrow` form."""
    return f"{name}.{kind}" if form == "wide" else f"{name}_{form}.{kind}"


def picture(text: str, name: str, folder: str = "") -> str:
    """Picture in Markdown, with its narrow form on narrow screens; `text` is its alternative text."""
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


def read_template(name: str) -> Template:
    """Template of this folder; it escapes everything that is not `Markup`, and refuses undefined names."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def shell(*styles: str) -> dict[str, Any]:
    """{css, script, script_hash, version} for a template: page.css and then `styles`, and the script with its hash."""
    from markupsafe import Markup

    files = ("page.css", *styles), SCRIPTS
    css, script = ("".join((PAGE / name).read_text(encoding="utf-8") for name in names) for names in files)
    sha = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return {"css": Markup(css), "script": Markup(script), "script_hash": f"sha256-{sha}", "version": __version__}
