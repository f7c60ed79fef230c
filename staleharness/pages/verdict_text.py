"""Verdict on a figure's claim in words: finding, parts with the comparison that decides, and table of tests."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ..statistics.claims.claim_evaluation import ClaimResult
from ..statistics.claims.claim_schema import verdict
from ..statistics.claims.part_tests import PERCENT, PartComparison, PartResult
from ..statistics.t_tests_and_intervals import Contrast
from .paper_figure_data import GalleryFigure

RANK = {"no": 0, "open": 1, "yes": 2}  # a part's outcome is that of its worst comparison
UNSEEN = "not looked at yet"
NO_CLAIM = "no claim to check"
HEADS = tuple(
    "part of the claim, result, comparison, difference [95 %], p, p (Holm), n, by environment, its result".split(", ")
)
OUTCOMES = {"yes": "holds", "no": "fails", "open": "open"}
ROLES = {"claim": "", "identity": " by definition", "ours": " (ours)"}  # parts that do not count
VERDICT_LINE = re.compile(r"^\*\*Verdict:\*\* ([a-z ]+)\.", re.MULTILINE)


def claims_text(claim_result: ClaimResult) -> str:
    """Verdict on each of several claims, with the number of its parts that hold; empty for a single claim."""
    verdicts = [
        f"{name}: {verdict([r.outcome for r in parts])} ({_count(parts)})"
        for name, parts in claim_result.by_claim.items()
    ]
    return ", ".join(verdicts)


def _count(parts: Sequence[PartResult]) -> str:
    return f"{sum(result.outcome == 'yes' for result in parts)} of {len(parts)} hold"


def parts_text(parts: Sequence[PartResult]) -> str:
    """Number of parts that hold, and the first of those that fail or else are open; where all hold, the first."""
    if not parts:
        return ""
    worst = min(parts, key=lambda result: RANK[result.outcome])
    return part_text(worst) if len(parts) == 1 else f"{_count(parts)}; {part_text(worst)}"


def finding(s: GalleryFigure) -> str:
    """Finding of a figure in a sentence: the first part of its claim that holds, or else the worst, with its numbers;
    empty without a claim."""
    parts = [result for result in s.claim_result.parts if result.part.role == "claim"]
    if not parts:
        return ""
    holding = [result for result in parts if result.outcome == "yes"]
    text = part_text(holding[0] if holding else min(parts, key=lambda result: RANK[result.outcome]))
    verb = "holds" if len(holding) == 1 else "hold"
    count = f" {len(holding)} of {len(parts)} parts of the claim {verb}." if len(parts) > 1 else ""
    return f"{text[0].upper()}{text[1:]}.{count}"


def part_text(result: PartResult) -> str:
    """Outcome, statement and deciding comparison of a part: its difference with the interval and runs per side, or the
    reason why there is none."""
    row = deciding_comparison(result.rows)
    comparison = row.problem or row.text
    if row.contrast is not None:
        comparison = f"{interval_text(result, row.contrast)}, n = {runs_text(row.contrast.n)}"
    return f"{OUTCOMES[result.outcome]}: {result.part.text} ({comparison})"


def deciding_comparison(rows: Sequence[PartComparison]) -> PartComparison:
    """Return the comparison with the worst outcome; among equal ones that with the largest p, or the smallest if a part
    fails."""

    def key(row: PartComparison) -> tuple[int, float]:
        p = row.holm if row.holm is not None else 1.0
        return RANK[row.outcome], p if row.outcome == "no" else -p

    return min(rows, key=key)


def verdict_words(s: GalleryFigure) -> str:
    """Verdict in words, also if there is none."""
    claim_result = s.claim_result
    return claim_result.verdict or (NO_CLAIM if claim_result.observation else UNSEEN)


def verdict_on_page(page: str) -> str:
    """Read the verdict from the text of a figure on a page."""
    match = VERDICT_LINE.search(page)
    return match[1] if match else UNSEEN


def verdict_lines(s: GalleryFigure) -> list[str]:
    """Markdown of verdict, text and tests."""
    claim_result = s.claim_result
    by_claim = claims_text(claim_result)
    lines = [f"**Verdict:** {verdict_words(s)}." + (f" {by_claim}." if by_claim else ""), ""]
    if tests := planned_tests(s):
        lines += [f"**To test, with all runs:** {tests}.", ""]
    if claim_result.observation:
        lines += [f"**We saw:** {claim_result.observation}", ""]
    if rows := test_rows(claim_result):
        head, *body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        lines += [head, "|" + "---|" * len(rows[0]), *body, ""]
    return lines


def planned_tests(s: GalleryFigure) -> str:
    """Statements that a figure will test once all runs are there; empty when they are."""
    if s.state == "drawn" and not s.absent_studies:
        return ""
    return "; ".join(part.text for part in s.figure.entry.part)


def test_rows(claim_result: ClaimResult) -> list[list[str]]:
    """A row for each comparison, headings first; empty without tests. Columns that no row fills are left out."""
    rows = []
    for result in claim_result.parts:
        part = [result.part.text, OUTCOMES[result.outcome] + ROLES[result.part.role]]
        for row in result.rows:
            rows.append([*part, *_cells(result, row), OUTCOMES[row.outcome] if len(result.rows) > 1 else ""])
            part = ["", ""]
    if not rows:
        return []
    filled_columns = [i for i in range(len(HEADS)) if any(row[i] for row in rows)]
    return [[row[i] for i in filled_columns] for row in (list(HEADS), *rows)]


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
    """Runs on each side of a comparison: `15`, `15, 22` where two differ, `5 to 7` of more."""
    return str(n[0]) if len(set(n)) == 1 else ", ".join(map(str, n)) if len(n) == 2 else f"{min(n)} to {max(n)}"


def interval_text(result: PartResult, contrast: Contrast) -> str:
    """Difference with its interval, or the reason why it has none."""
    value = _number(result, contrast.value)
    if contrast.low is None or contrast.high is None:
        is_single = min(contrast.n) < 2 * len(contrast.envs)
        reason = "the same in every seed" if contrast.p is not None else "one seed" if is_single else "a seed has 0"
        return f"{value} [{reason}]"
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
