"""The papers, figures and studies in experiments/, and results of a study's shape."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from heap import freeze_heap
from places import ROOT
from results_helper import write_run

from staleharness.pages import paper_figure_specs
from staleharness.pages.paper_figure_data import GalleryFigure, load_figures
from staleharness.pages.paper_figure_specs import read_paper
from staleharness.store.study_runs import label_options, read_study_runs
from staleharness.study import USUAL_LAG, SweepRequest

STUDIES = sorted(paper_figure_specs.experiments().glob("*.toml"))
PAPERS = sorted(path.parent.name for path in paper_figure_specs.experiments().glob("*/paper.toml"))
FIGURES = {f"{name}/{f.name}": f for name in PAPERS for f in read_paper(name)[1]}
LANGUAGE = ("word-problems", "gsm8k")


@functools.cache
def published_figures(paper: str) -> list[GalleryFigure]:
    """The figures of a paper with their published results, which take seconds to read and are the same for all."""
    figures = load_figures(read_paper(paper)[1], ROOT / "results" / "reference")
    freeze_heap()
    return figures


@functools.cache
def is_published(study: str) -> bool:
    """Return whether every run that a study asks for is published."""
    request = next(f.request for f in FIGURES.values() if f.entry.study == study)
    runs = read_study_runs(ROOT / "results" / "reference" / study, request, "small")
    return runs is not None and runs.complete


def write_study(root: Path, request: SweepRequest) -> None:
    """Runs of the shape that a study asks for, one environment and two seeds of it, but never all of several."""
    env = request.env[0]
    kind = "language" if env in LANGUAGE else "chain" if env == "bit-chain" else "control"
    for label, k, where in request.cells():
        _, _, n = label.partition(" N=")
        settings: dict[str, Any] = {"lag": request.lag or USUAL_LAG, **request.settings}
        inside = dict(label_options(label))
        settings |= {"hyper": inside, **{key: inside[key] for key in ("horizon", "batch") if key in inside}}
        settings |= {"minibatches": int(n)} if n else {}
        complete = len(request.env) == 1 and len(request.seed_numbers) == 2
        seeds = 3 if len(request.seed_numbers) >= 5 else 1 if complete else 2
        for seed in range(seeds) if where == env else ():
            score = 0.5 - 0.01 * k + 0.1 * seed if kind != "control" else 900.0 - 40 * k + 100 * seed + 7 * len(label)
            name = f"{env}-v5" if kind == "control" else env
            own: dict[str, Any] = {"kind": kind, "settings": settings}
            write_run(root, label, seed, env=name, capacity=k, sampled=score, phases=4, **own)
