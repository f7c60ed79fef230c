"""The page of corrections is made from the published runs."""

from __future__ import annotations

from places import ROOT

from staleharness.pages.corrections import corrections
from staleharness.statistics.results import load

PUBLISHED = ROOT / "results" / "reference"


def test_the_committed_page_is_that_of_the_published_bundles() -> None:
    page = (ROOT / "docs" / "corrections.md").read_text(encoding="utf-8")
    assert page == corrections(PUBLISHED), "run make docs"


def test_each_method_has_its_row_with_both_of_its_runs() -> None:
    page = corrections(PUBLISHED)
    for name, digits in (("corrections_word_problems", 2), ("corrections_hopper", 0)):
        for label in load(PUBLISHED / name).grid.labels:
            kind = "deterministic" if digits else "sampled"
            runs = [run for run in load(PUBLISHED / name) if run.label == label]
            ends = [
                f"{run.record['scores'][kind]['mean']:.{digits}f}"
                for run in sorted(runs, key=lambda r: r.seed)
            ]
            assert f"({', '.join(ends)}) |" in page, label
    assert "{" not in page
