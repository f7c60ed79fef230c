"""Index of the gallery as one HTML page: every figure with its verdict, and the ways to leaderboard and methods.

Below it the lists of runs behind a paper's page: a row for each method, capacity and environment, with every run's
score. The page's numbers lead to them: the n of a test to the first of its two sides, a figure's facts to its study.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..statistics.claims.study_evidence import Evidence
from ..statistics.method_labels import display_label
from ..statistics.scores import final_score
from .page_shell import prose, read_template, shell
from .paper_figure_runs import GalleryFigure
from .paper_figure_specs import paper_names, read_paper
from .paper_summary import anchor, conclusion_on_page, picture_file, read_page, sections_on_page, verdict_on_page

PAGES = (  # beside the gallery; linked where they exist
    ("leaderboard.html", "Leaderboard", "every method on every track, with formula, curves and runs"),
    ("corrections.md", "Which corrections survive", "each study tested by its own rules"),
    ("staleness_budgets.md", "Staleness budgets", "what each method keeps at each lag"),
    ("methods.md", "Methods", "the map of methods, the symbols and what options share"),
    ("figures.md", "How verdicts are made", "parts of claims, tests and corrections"),
)
NO_SENTENCE = re.compile(r"^(?:<!--.*?-->|\||#|\s*$)")  # lines of a method's page: comment, table, heading or blank


def index_page(out: Path) -> str:
    """HTML of the index of the gallery in the folder `out`, with links to the pages that exist now."""
    papers = [_paper(name, out) for name in paper_names()]
    studies = [{"link": link, "title": title} for link, title in study_pages(out).items()]
    pages = [(f"../{name}", title, about) for name, title, about in PAGES if (out.parent / name).is_file()]
    return read_template("index.html.j2").render(
        **shell(),
        title="Gallery of stale data",
        papers=papers,
        studies=studies,
        pages=pages,
        methods=_methods(out.parent),
    )


def _paper(name: str, out: Path) -> dict[str, Any]:
    paper, figures = read_paper(name)
    sections = sections_on_page(out / name / "evidence.md")
    html = f"{name}.html" if (out / f"{name}.html").is_file() else ""
    rows = []
    for f in figures:
        section = sections.get(f.heading, "")
        link = f"{html}#{f.name}" if html else f"{name}/evidence.md#{anchor(f.heading)}"
        drawing = f"{name}/{picture_file(f.name)}"
        rows.append(
            {
                "heading": f.heading,
                "question": f.entry.question,
                "verdict": verdict_on_page(section) if section else "not drawn yet",
                "link": link if section else "",
                "picture": drawing if (out / drawing).is_file() else "",
            }
        )
    counts = Counter(row["verdict"] for row in rows)
    return {
        "name": name,
        "title": paper.title,
        "link": html or (f"{name}.md" if sections else ""),
        "conclusion": prose(conclusion_on_page(read_page(out / f"{name}.md"))),
        "counts": sorted(counts.items(), key=lambda item: (-item[1], item[0])),
        "rows": rows,
    }


def study_pages(out: Path) -> dict[str, str]:
    """Link -> title of the studies of our own, which have a page each in the folder of the gallery."""
    pages = {f"{path.parent.name}/README.md": read_page(path) for path in sorted(out.glob("*/README.md"))}
    return {link: text.partition("# ")[2].partition("\n")[0] for link, text in pages.items()}


def _methods(docs: Path) -> list[dict[str, str]]:
    """Pages of methods in the folder of the documentation: name and first sentence."""
    pages = []
    for path in sorted((docs / "methods").glob("*.md")):
        lines = path.read_text(encoding="utf-8").splitlines()
        about = next((line for line in lines if not NO_SENTENCE.match(line)), "")
        if path.stem != "README":
            pages.append({"link": f"../methods/{path.name}", "name": path.stem, "about": about.replace("`", "")})
    return pages


def evidence_by_study(entries: Iterable[GalleryFigure]) -> dict[str, Evidence]:
    """Runs of every study that the figures or their tests use, by its name."""
    studies: dict[str, Evidence] = {}
    for s in entries:
        if s.state == "no bundle":
            continue
        study_of_figure = s.figure.entry.study
        for study in [study_of_figure, *(part.study or study_of_figure for part in s.figure.entry.part)]:
            if study not in studies:
                studies[study] = s.evidence_of("" if study == study_of_figure else study)
    return studies


def run_lists(studies: Mapping[str, Evidence]) -> list[dict[str, Any]]:
    """Contents of the lists, for the template, one for each study."""
    return [_list(study, evidence) for study, evidence in studies.items()]


def _list(study: str, evidence: Evidence) -> dict[str, Any]:
    score, cells = evidence.table.settings["score"], evidence.results.grid.cells
    digits = 3 if evidence.table.settings["normalise"] == "raw" else 0
    anchors: set[str] = set()
    rows = []
    for cell in sorted(cells):
        anchor = row_anchor(study, cell.label, cell.capacity)
        rows.append(
            {
                "anchor": "" if anchor in anchors else anchor,  # the first environment's row
                "method": display_label(cell.label),
                "k": cell.capacity,
                "env": cell.env.rpartition("-v")[0] or cell.env,
                "runs": [
                    {"id": run.id, "seed": run.seed, "score": f"{final_score(run, score):.{digits}f}"}
                    for run in sorted(cells[cell], key=lambda run: run.seed)
                ],
            }
        )
        anchors.add(anchor)
    return {"study": study, "measure": evidence.table.settings["measure"], "count": len(evidence.results), "rows": rows}


def test_links(s: GalleryFigure) -> list[str]:
    """Anchor of the runs of each comparison of a figure, in the order of `test_rows`; empty where it has none."""
    return [
        row_anchor(part.part.study or s.figure.entry.study, *row.cells[0]) if row.cells and row.contrast else ""
        for part in s.claim_result.parts
        for row in part.rows
    ]


def row_anchor(study: str, label: str, k: int) -> str:
    """Anchor of the runs of a method at a capacity."""
    return f"runs-{study}-{label}-{k}".replace(" ", "_")
