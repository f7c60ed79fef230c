"""Page of corrections from the published runs."""

from __future__ import annotations

import pytest
from corrections import _gap, corrections
from places import ROOT

from staleharness.statistics.results import load
from staleharness.statistics.significance_and_power import MethodDifference

PUBLISHED = ROOT / "results" / "reference"


def test_the_committed_page_is_that_of_the_published_bundles() -> None:
    page = (ROOT / "docs" / "corrections.md").read_text(encoding="utf-8")
    assert page == corrections(PUBLISHED), "run make docs"


@pytest.mark.long
def test_each_method_has_a_row_with_its_runs_or_their_range() -> None:
    page = corrections(PUBLISHED)
    for name, digits in (("corrections_word_problems", 2), ("corrections_hopper", 0)):
        for label in load(PUBLISHED / name).grid.labels:
            kind = "deterministic" if digits else "sampled"
            runs = [run for run in load(PUBLISHED / name) if run.label == label]
            ends = [run.record["scores"][kind]["mean"] for run in sorted(runs, key=lambda r: r.seed)]
            said = [f"{end:.{digits}f}" for end in (ends if len(ends) < 4 else (min(ends), max(ends)))]
            assert f"({(', ' if len(ends) < 4 else ' to ').join(said)}) |" in page, label
    assert "{" not in page


def test_rows_are_sorted_and_bold_ones_are_those_of_the_lists() -> None:
    section = corrections(PUBLISHED).split("\n## ")[1]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| [")]
    means = [float(row[1].split(" ")[0].replace("−", "-")) for row in rows]
    assert means == sorted(means, reverse=True) and len(rows) == len(
        load(PUBLISHED / "stress_word_problems").grid.labels
    )
    told = {row[0].split("[")[1].split("]")[0]: row[2] for row in rows if row[2].startswith("**")}
    lists = " ".join(section[section.index("Above PPO-clip: ") :].split("\n\n")[0].split())
    above, below, _ = (part.split(": ")[1].split(" · ") for part in lists.rstrip(".").split("; "))
    assert {name for name, gap in told.items() if gap.startswith("**+")} == set(above) - {"none"}
    assert {name for name, gap in told.items() if gap.startswith("**−")} == set(below) - {"none"}


def test_differences_without_an_interval_have_a_dash() -> None:
    few = MethodDifference("a", "b", 0.5, None, None, 0.0625, 0.0625)
    many = MethodDifference("a", "b", 0.5, 0.5, 0.5, 0.03125, 0.03125)
    assert (_gap(few, 1), _gap(many, 1), _gap(None, 1)) == ("+0.5 [–]", "**+0.5 [0.5, 0.5]**", "")
