"""Hooks of the site's build: pages from outside docs/, the API reference, and links that lead out of docs/.

A link to a file of the checkout (a plugin, a result table) becomes one to a copy that the site carries, since the site
names no code host.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
PAGES = {"README.md": "start.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}  # to the site's
WHOLE_LEADERBOARD = "leaderboard_table.html"  # the site's copy of docs/leaderboard.html, beside the page of that name
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s#]+)([^)]*\))")
CELL, CODE = re.compile(r"<t[dh]\b.*?</t[dh]>", re.DOTALL), re.compile(r"(?<=<code>)[^<]*(?=</code>)")
SOURCE = re.compile(r'(<(?:img|a|source)\b[^>]*?\b(?:src|href|srcset)=")([^"#]+)(")')

# modules that plugins and notebooks import, and their public names in the order of the source
REFERENCE = {
    "Studies in Python": "staleharness.api",
    "Algorithm": "staleharness.algorithm",
    "Batch: what a method is given": "staleharness.batch",
    "Objectives": "staleharness.objectives",
    "Weights": "staleharness.weights",
    "Task": "staleharness.task",
    "Lag": "staleharness.lag",
    "Schedule": "staleharness.rollout_schedule",
    "Trace": "staleharness.trace",
    "Errors": "staleharness.errors",
}


def slug(text: str, separator: str) -> str:
    """Return the anchor of a heading as code hosts make it."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages of the checkout's root, the API reference, and the files that pages link to."""
    for source, target in PAGES.items():
        files.append(File.generated(config, target, content=_from_root((ROOT / source).read_text("utf-8"))))
    files.append(File.generated(config, "reference.md", content=_reference()))
    leaderboard = (ROOT / "docs" / "leaderboard.html").read_text("utf-8")
    leaderboard = re.sub(r'href="(methods/\w+)\.md"', r'href="\1.html"', leaderboard)
    files.append(File.generated(config, WHOLE_LEADERBOARD, content=leaderboard))
    for page in list(files.documentation_pages()):
        folder = posixpath.dirname(page.src_uri)
        for link in _links(page.content_string):
            copy = _site_path(posixpath.normpath(posixpath.join("docs", folder, link)))
            if copy is not None and copy.startswith("files/") and files.get_file_from_path(copy) is None:
                source = copy.removeprefix("files/").removesuffix(".txt")
                files.append(File.generated(config, copy, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point links that lead out of docs/ to pages and copies of the site."""
    folder = posixpath.dirname(page.file.src_uri)

    def move(link: str) -> str:
        target = _site_path(posixpath.normpath(posixpath.join("docs", folder, link)))
        return link if target is None else posixpath.relpath(target, folder or ".")

    return _move_links(markdown, move)


def on_page_content(html: str, **_: Any) -> str:
    """Allow line breaks in code in tables after the signs between its words."""

    def divide(code: re.Match[str]) -> str:
        return re.sub(r"([/_:,=\[]+(?=\w)|\.(?=[a-z]))", r"\1<wbr>", code[0])

    return CELL.sub(lambda cell: CODE.sub(divide, cell[0]), html)


def on_post_template(output: str, template_name: str, **_: Any) -> str:
    """Leave out the theme's page for lost links: its addresses begin at a host's root, where the site need not be."""
    return "" if template_name == "404.html" else output


def _links(text: str) -> list[str]:
    found = [match[2] for pattern in (LINK, SOURCE) for match in pattern.finditer(text)]
    return [link for link in found if _is_path(link)]


def _is_path(link: str) -> bool:
    return "://" not in link and not link.startswith(("#", "mailto:", "data:"))


def _move_links(text: str, move: Callable[[str], str]) -> str:
    """Replace the links to files in a page."""

    def replace(match: re.Match[str]) -> str:
        before, link, after = match.groups()
        return before + move(link) + after if _is_path(link) else match[0]

    return SOURCE.sub(replace, LINK.sub(replace, text))


def _site_path(path: str) -> str | None:
    """Return where the site has a file or folder of the checkout, or None where there is no such thing."""
    if (ROOT / path).is_dir():
        inside = [name for name in ("README.md", "runs.csv") if (ROOT / path / name).is_file()]
        path = posixpath.join(path, inside[0]) if inside else path
    if not (ROOT / path).is_file():
        return None
    if path in PAGES:
        return PAGES[path]
    if path == "docs/leaderboard.html":
        return WHOLE_LEADERBOARD
    if path.startswith("docs/") and not path.endswith((".py", ".ipynb")):
        return path.removeprefix("docs/")
    return f"files/{path}.txt" if path.endswith((".md", ".py", ".toml")) else f"files/{path}"


def _from_root(text: str) -> str:
    """The links of a page at the root of the checkout, as seen from docs/."""
    return _move_links(text, lambda link: posixpath.relpath(link, "docs"))


def _reference() -> str:
    sections = [
        "# API reference",
        "Names that plugins and notebooks import; each module's docstring says what it is for.",
    ]
    for title, module in REFERENCE.items():
        sections += [f"## {title}", f"::: {module}\n    options:\n      show_root_heading: false"]
    return "\n\n".join(sections) + "\n"


if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
