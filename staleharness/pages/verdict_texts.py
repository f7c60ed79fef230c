"""Texts of a page about a claim: the verdict, the observation, and the table of the tests behind it."""

from __future__ import annotations

import math
import re

from ..statistics.claims.claim_results import ClaimResult
from ..statistics.claims.part_tests import PERCENT, PartComparison, PartResult
from ..statistics.t_intervals import Contrast
from .paper_figure_results import GalleryFigure

UNSEEN, NO_CLAIM = "not looked at yet", "no claim to check"
HEADS = ("part of the claim", "", "compared", "difference [95 %]", "p", "p (Holm)", "n", "by environment", "")
OUTCOMES = {"yes": "holds", "no": "fails", "open": "open"}
ROLES = {"claim": "", "identity": " by definition", "ours": " (ours)"}  # parts that do not count
VERDICT_LINE = re.compile(r"^\*\*Verdict:\*\* ([a-z ]+)\.", re.MULTILINE)


def verdict_words(s: GalleryFigure) -> str:
    """Verdict in words, also if there is none."""
    reading = s.reading
    return reading.verdict or (NO_CLAIM if reading.saw else UNSEEN)


def verdict_on_page(page: str) -> str:
    """Read the verdict from the text of a figure on a page."""
    match = VERDICT_LINE.search(page)
    return match[1] if match else UNSEEN


def verdict_lines(s: GalleryFigure) -> list[str]:
    """Markdown of verdict, text and tests."""
    reading = s.reading
    lines = [f"**Verdict:** {verdict_words(s)}.", ""]
    if reading.saw:
        lines += [f"**We saw:** {reading.saw}", ""]
    if rows := test_rows(reading):
        head, *body = rows
        table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (head, *body)]
        lines += [table[0], "|" + "---|" * len(head), *table[1:], ""]
    return lines


def test_rows(reading: ClaimResult) -> list[list[str]]:
    """A row for each comparison, headings first; empty without tests. Columns that no row fills are left out."""
    rows = [row for result in reading.parts for row in _part(result)]
    if not rows:
        return []
    filled_columns = [i for i in range(len(HEADS)) if any(row[i] for row in rows)]
    return [[row[i] for i in filled_columns] for row in (list(HEADS), *rows)]


def _part(result: PartResult) -> list[list[str]]:
    rows = []
    for i, row in enumerate(result.rows):
        several = len(result.rows) > 1
        part = [result.part.says, OUTCOMES[result.outcome] + ROLES[result.part.role]] if i == 0 else ["", ""]
        rows.append([*part, *_cells(result, row), OUTCOMES[row.outcome] if several else ""])
    return rows


def _cells(result: PartResult, row: PartComparison) -> list[str]:
    """Cells of a comparison: its text, the difference with its interval, p without and with Holm's correction, n, and
    the differences by environment."""
    contrast = row.contrast
    if contrast is None:
        return [row.text, row.problem or "–", "", "", "", ""]
    part = result.part
    margin = f" (margin {_number(result, part.margin)})" if part.margin else ""
    envs = [f"{env.rpartition('-v')[0] or env} {_number(result, v)}" for env, v in contrast.envs.items()]
    return [
        row.text,
        interval_text(result, contrast) + margin,
        _p(row.p(part)),
        _p(row.holm),
        runs_text(contrast.n),
        ", ".join(envs) if len(envs) > 1 else "",
    ]


def runs_text(n: tuple[int, ...]) -> str:
    """Runs on each side of a comparison: `15`, or `15, 22` where they differ."""
    return str(n[0]) if len(set(n)) == 1 else ", ".join(map(str, n))


def interval_text(result: PartResult, contrast: Contrast) -> str:
    """Difference with its interval, or the reason why it has none."""
    value = _number(result, contrast.value)
    if contrast.low is None or contrast.high is None:
        return f"{value} [{'one seed' if contrast.p is None else 'the same in every seed'}]"
    return f"{value} [{_number(result, contrast.low)}, {_number(result, contrast.high)}]"


def _number(result: PartResult, value: float) -> str:
    """Format with two significant digits, shares in per cent; a ratio near one with two decimals."""
    if result.part.ratio:
        return f"× {math.exp(value):.2f}" if abs(value) < math.log(2) else f"× {math.exp(value):.2g}"
    if result.part.what in PERCENT:
        text = f"{100 * value:.0f} %" if abs(value) >= 0.1 else f"{100 * value:.1f} %"
    elif result.part.what == "return" or abs(value) >= 100:
        text = f"{value:.0f}"
    else:
        text = f"{value:.2f}" if abs(value) >= 0.1 or result.part.what == "score" else f"{value:.2g}"
    if not any(c in "123456789" for c in text):
        text = text.replace("-", "")  # no minus before a zero
    return text.replace("-", "−")


def _p(p: float | None) -> str:
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.2g}"
