"""Links between the project's pages: the file is there, and the heading it names."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for folder in (".", ".github", "algorithms", "docs", "envs", "experiments", "results/reference", "tests")
    for page in ((ROOT / folder).glob("*.md") if folder == "." else (ROOT / folder).rglob("*.md"))
)
LINK = re.compile(r"""\]\(<?([^)\s>]+)>?(?:\s+"[^"]*")?\)|(?:src|href|srcset)=["']([^"']+)["']""")


def prose(text: str) -> str:
    """A page without its fenced and inline code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^\s*(```|~~~).*?^\s*\1", "", text))


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as GitHub makes them of their text, and ids in its HTML."""
    text = page.read_text(encoding="utf-8")
    heads = re.findall(r"(?m)^#+\s+(.*?)\s*#*$", re.sub(r"(?ms)^\s*(```|~~~).*?^\s*\1", "", text))
    shown = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", head) for head in heads)
    made = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in shown}
    return made | set(re.findall(r"""(?:id|name)=["']([^"']+)["']""", text))


def broken(page: Path) -> list[str]:
    """Relative links of a page that lead nowhere."""
    found = []
    for pair in LINK.findall(prose(page.read_text(encoding="utf-8"))):
        link = unquote(pair[0] or pair[1])
        if re.match(r"[a-z][a-z+.-]*:", link):
            continue
        path, _, anchor = link.partition("#")
        there = page if not path else page.parent / path
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    assert broken(ROOT / page) == []


def test_what_a_broken_link_is(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# Two *words*, `K`\n[a](#two-words-k) [b](#three) [c](b.md) `[d](no.md)` [e](https://x.org)\n", "utf-8"
    )
    assert broken(page) == ["#three", "b.md"]
