"""Facts under a figure of a paper: n, intervals, scale and dates of its runs, the studies that share them, and lists of
all runs behind a page."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.text_formatting import plural
from ..figures.captions import run_facts, scale
from ..statistics.aggregate import COVERAGE, MIN_RUNS, coverage_text
from ..statistics.claims.study_evidence import Evidence
from ..statistics.method_labels import display_label
from ..statistics.scores import final_score
from ..statistics.table import Table, extent
from ..store.stored_run import StoredRun
from ..store.study_runs import StudyRuns, overlap_with
from ..study import without_version
from .paper_figure_data import GalleryFigure
from .paper_figure_specs import experiments

DRAFT = "DRAFT, runs are missing"


def figure_facts(s: GalleryFigure) -> str:
    """Facts under a figure: n, interval, normalisation, scale and dates, in words."""
    bundle, study = s.bundle, s.figure.entry.study
    if bundle is None or s.table is None:
        text = f"No bundle yet: `{s.command('reproduce')}` makes the runs of the study `{study}`."
        others = bundle.other_runs if bundle else 0
        return f"{text} (The folder holds {plural(others, 'run')} with other settings.)" if others else text
    settings, facts = s.table.settings, run_facts(s.table)
    envs, ks = settings["envs"], ", ".join(map(str, settings["capacities"]))
    algorithms = len({r["algorithm"] for r in s.table.rows})
    seeds = len(s.figure.request.at(bundle.scale).seed_numbers)
    text = (
        f"n = {plural(seeds, 'seed')} × {plural(len(envs), 'environment')} ({', '.join(envs)}), "
        f"{plural(algorithms, 'algorithm')}, K = {ks}: {len(bundle.runs)} of {plural(len(bundle.requests), 'run')}. "
        f"{facts[0].upper()}{facts[1:]}. Intervals: {settings['level']:.0%} stratified bootstrap, "
        f"{settings['reps']:,} resamples{coverage_text(seeds)}. "
        f"Scores: {scale(s.table)} ({settings['constants_note']})."
    )
    if seeds < MIN_RUNS:
        text += f" {COVERAGE}"
    for name, results in s.companions.items():
        facts = run_facts(Table([], [], extent(results)))
        text += f" Beside them: {plural(len(results), 'run')} of `{name}`, {facts}."
    text += _sharing_note(bundle)
    if s.scale == "small":
        text += dates_note(figure_dates().get(f"{s.figure.paper}/{s.figure.name}"))
    if absent := s.absent_studies:
        text += f" Not tested: not all results of {_and_list([f'`{name}`' for name in absent])} are here."
    if bundle.other_runs:
        text += f" Left out: {plural(bundle.other_runs, 'run')} in the folder with other settings."
    return text if bundle.complete else f"{DRAFT}. {text}"


@functools.cache
def figure_dates() -> dict[str, dict[str, str]]:
    """Days of the tests and runs of figures, by `paper/figure`, as docs/figure_dates.py found them."""
    path = experiments() / "test_dates.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def dates_note(dates: Mapping[str, str] | None) -> str:
    """Sentence on whether a figure's tests were written before its runs were published; empty without tests."""
    if not dates:
        return ""
    if dates["before"] == "yes":
        return f" Its tests were written on {dates['last']}, before its runs were published ({dates['runs']})."
    if dates["before"] == "no":
        later = f", last changed on {dates['last']}" if dates["last"] != dates["first"] else ""
        return (
            f" Its tests were written after its runs: tests of {dates['first']}{later}, runs published from "
            f"{dates['runs']} on."
        )
    return (
        f" Its tests were written on {dates['first']}, before its runs were published ({dates['runs']}), and changed "
        f"after that, on {dates['last']}."
    )


def _sharing_note(bundle: StudyRuns) -> str:
    """Note on the runs that also belong to other studies, and on those repeated for them."""
    overlap, text = overlap_with(bundle), ""
    if n := len(overlap.identical):
        text += (
            f" {n} of these runs ({_methods_and_seeds(overlap.identical)}) also {'belongs' if n == 1 else 'belong'} to "
            f"{_and_list(overlap.identical_in)}, so the results there are not independent evidence."
        )
    if n := len(overlap.rerun):
        text += (
            f" {plural(n, 'run')} ({_methods_and_seeds(overlap.rerun)}) {'was' if n == 1 else 'were'} repeated for "
            f"{_and_list(overlap.rerun_in)} on another kind of processor or by another version of the code, with "
            "different numbers."
        )
    return text


def _and_list(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *head, last = names
    return f"{', '.join(head)} and {last}" if head else last


def _methods_and_seeds(runs: Sequence[StoredRun]) -> str:
    """Algorithms of the runs, if they are few, and seeds."""
    labels, seeds = sorted({display_label(run.label) for run in runs}), sorted({run.seed for run in runs})
    methods = " / ".join(labels) if len(labels) < 4 else f"{len(labels)} algorithms"
    return f"{methods}; {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"


def run_lists(entries: Iterable[GalleryFigure]) -> list[dict[str, Any]]:
    """Lists of the runs of every study that figures or their tests use, for the template: a row for each method,
    capacity and environment, with every run's score.

    The page's numbers link to them: the n of a test to the first of its two sides, a figure's facts to its study.
    """
    studies: dict[str, Evidence] = {}
    for s in entries:
        if s.state == "no bundle":
            continue
        study_of_figure = s.figure.entry.study
        for study in [study_of_figure, *(part.study or study_of_figure for part in s.figure.entry.part)]:
            if study not in {*studies, *s.absent_studies}:
                studies[study] = s.evidence_of("" if study == study_of_figure else study)
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
