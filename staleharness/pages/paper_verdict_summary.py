"""One-page summary of a paper in the gallery: conclusion, and the verdict on each claim with its deciding test.

The page behind it, `<paper>/evidence.md` (`paper_gallery.py`), has every figure, test and text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ..base.text_formatting import invocation
from ..errors import UserError
from ..statistics.claims.claim_evaluation import fill_numbers, tests_in_text
from ..statistics.significance_and_power import holm_level
from .page_parts import anchor, picture, picture_file, read_page
from .paper_figure_data import STUDY, GalleryFigure
from .paper_figure_specs import Paper, PaperFigure
from .verdict_text import NO_CLAIM, UNSEEN, claims_text, parts_text, verdict_words

CONCLUSION = "**In short:** "
CONCLUSION_LINE = re.compile(rf"^{re.escape(CONCLUSION)}(.+)$", re.MULTILINE)
HEAD = (
    "| figure | verdict | claim parts that hold; first part that fails, else first open part (difference, 95 % "
    "interval, runs per side) |"
)
ROW = re.compile(r"\| \[(.+?)\]\(.*")  # of a figure with a claim
LINK = re.compile(r"(?<!\| )\[([^\]]+)\]\(([\w/]+/evidence\.md#[^)]+)\)")  # of one without


def summary_page(
    paper: Paper, name: str, figures: Sequence[PaperFigure], entries: Sequence[GalleryFigure], out: Path
) -> str:
    """Markdown of the summary page in the folder `out`.

    figures: those with a section on the evidence page, in its order. entries: those evaluated now; lines of the others
    stay as they are on the page. Raises `UserError` naming the file whose text cannot be filled.
    """
    earlier = read_page(out / f"{name}.md")
    line_of = {m[1]: m[0] for line in earlier.splitlines() if (m := ROW.match(line))}
    line_of |= {heading: f"[{heading}]({link})" for heading, link in LINK.findall(earlier) if heading not in line_of}
    line_of |= {s.figure.heading: figure_line(s) for s in entries if s.state != "no bundle"}
    lines = [line_of[f.heading] for f in figures if f.heading in line_of]
    rows, others = [x for x in lines if x.startswith("| ")], [x for x in lines if not x.startswith("| ")]
    parts = [f"# {paper.title}", f"<{paper.link}>. {paper.about}" if paper.link else paper.about]
    if text := conclusion(paper, name, entries) or conclusion_on_page(earlier):
        parts.append(CONCLUSION + text)
    if rows:
        parts.append("\n".join([HEAD, "|---|---|---|", *rows]))
    if others:
        parts.append("Figures without a claim to check: " + " · ".join(others) + ".")
    pictures = [f for f in figures if f.name == paper.conclusion_from and (out / name / picture_file(f.name)).is_file()]
    parts += [picture(f.heading, f.name, f"{name}/") for f in pictures]
    draw = invocation("figures", paper=name)
    parts.append(
        f"[All figures, tests and texts]({name}/evidence.md). `{draw}` draws them again from the published runs; it "
        f"also writes `{name}.html`, all of it in one file. "
        "[How verdicts are made](../figures.md#verdicts)."
    )
    return "\n\n".join(parts) + "\n"


def conclusion(paper: Paper, name: str, entries: Sequence[GalleryFigure]) -> str:
    """Conclusion of a paper with its numbers filled in; empty without one, and while runs of its figure or a study that
    it quotes are missing. Holm's correction covers the tests that it states and those of its figure."""
    for s in entries:
        is_complete = s.state == "drawn" and not s.absent(*STUDY.findall(paper.conclusion))
        if s.figure.name == paper.conclusion_from and is_complete:
            try:
                tests = tests_in_text(paper.conclusion, s.evidence_of)
                if tests and s.absent_studies:  # tests of its figure cannot be made
                    return ""
                level = holm_level([p for _, p in tests | s.claim_result.tests])
                return fill_numbers(paper.conclusion, s.evidence_of, level)
            except UserError as error:
                raise UserError(f"{name}/paper.toml: {error}") from None
    return ""


def conclusion_on_page(page: str) -> str:
    """Read the conclusion from a summary page; empty where it has none."""
    match = CONCLUSION_LINE.search(page)
    return match[1] if match else ""


def figure_line(s: GalleryFigure) -> str:
    """Row of a figure: link to its section, verdict, and how its claim fares; without a claim, the link alone."""
    link = f"[{s.figure.heading}]({s.figure.paper}/evidence.md#{anchor(s.figure.heading)})"
    parts = [result for result in s.claim_result.parts if result.part.role == "claim"]
    if not parts and verdict_words(s) in (NO_CLAIM, UNSEEN):
        return link
    text = "; ".join(filter(None, [claims_text(s.claim_result), parts_text(parts)]))
    return f"| {link} | {verdict_words(s)} | {text.replace('|', chr(92) + '|')} |"
