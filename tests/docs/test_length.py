"""Length of the hand-written pages."""

from __future__ import annotations

import re
from pathlib import Path

from places import ROOT

LIMIT = 35_000  # words
GENERATED = ("docs/gallery/", "docs/methods/")  # by `make figures` and `make docs`
GENERATED += tuple(f"docs/{name}.md" for name in ("corrections", "lag_models", "leaderboard", "settings"))
GENERATED += ("docs/early_warnings.md", "docs/staleness_budgets.md")
RECORDS = ("CHANGELOG.md", "docs/log.md")
FOLDERS = (".github", "algorithms", "benchmarks", "docs", "envs", "experiments", "results/reference", "tests")


def page_words(page: Path) -> int:
    """Words of a page, without the tables that a program writes between two marks."""
    text = re.sub(r"<!-- Begin of .*?<!-- End of ", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return len(text.split())


def hand_written() -> dict[str, int]:
    """Words by page, for pages that no program writes."""
    pages = [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))]
    names = {page.relative_to(ROOT).as_posix(): page for page in pages}
    skip = (*GENERATED, *RECORDS, "docs/gallery_paper/")
    return {name: page_words(page) for name, page in sorted(names.items()) if not name.startswith(skip)}


def test_hand_written_pages_stay_within_the_limit() -> None:
    words = hand_written()
    longest = sorted(words.items(), key=lambda item: -item[1])[:5]
    assert sum(words.values()) <= LIMIT, f"{sum(words.values())} words; the longest pages: {longest}"


if __name__ == "__main__":  # python tests/docs/test_length.py
    for name, words in hand_written().items():
        print(f"{words:6} {name}")
    print(f"{sum(hand_written().values()):6} in all")
