"""Lists of the runs behind a paper's page: a row for each method, capacity and environment, with every run's score.

The page's numbers lead to them: the n of a test to the first of its two sides, a figure's facts to its study.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..statistics.claims.study_evidence import Evidence
from ..statistics.method_labels import display_label
from ..statistics.scores import final_score
from ..study import without_version
from .gallery_figure import GalleryFigure


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
                "env": without_version(cell.env),
                "runs": [(run.id, run.seed, f"{final_score(run, score):.{digits}f}") for run in cells[cell]],
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
