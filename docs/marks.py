"""Generated parts of pages that people write, each between two marks."""

from __future__ import annotations


def between_marks(page: str, begin: str, end: str, content: str) -> str:
    """Replace the text between two marks. Raises `ValueError` unless the page has each of them once."""
    if [page.count(begin), page.count(end)] != [1, 1]:
        raise ValueError(f"the page has not one {begin} and one {end}: put the marks back")
    return page.partition(begin)[0] + begin + content + end + page.partition(end)[2]
