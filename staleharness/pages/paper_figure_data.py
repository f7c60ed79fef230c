"""Figures of a paper with the results that fill them."""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..base.text_formatting import invocation
from ..errors import UserError
from ..statistics.aggregate import show_single_runs
from ..statistics.claims.claim_evaluation import ClaimResult, evaluate_claim
from ..statistics.claims.study_evidence import Evidence
from ..statistics.method_labels import option_values, without_options
from ..statistics.results import Results
from ..statistics.table import Table
from ..store.bundle_reader import is_packed
from ..store.store import Store
from ..store.study_runs import StudyRuns, find_bundle, read_study_runs
from ..study import check_scale_name, read_study
from . import paper_figure_specs
from .paper_figure_specs import PaperFigure

# Texts of an entry, which are not in its picture.
TEXTS = ("question", "claim", "motivation", "observation", "part", "verdict")
AXES = (("option", "name"), ("across", "across_name"))  # options of a drawing whose values lie along an axis
STUDY = re.compile(r"\bstudy=([\w-]+)")  # in a text, for a number from another study
LATER = ("names", "beside", "ordered")  # keys added later; empty ones are left out of a picture's digest


@dataclass(frozen=True)
class GalleryFigure:
    """A figure with the runs that fill it."""

    figure: PaperFigure
    bundle: StudyRuns | None  # of the algorithms that are shown
    results: Results  # its runs
    table: Table | None
    evidence_of: Callable[[str], Evidence]  # the runs of a study by name; of its own, all of them, by ""
    companions: Mapping[str, Results]  # of the other studies that its drawing shows
    scale: str  # of the runs
    bundles: Path  # folder of the results of all studies

    @functools.cached_property
    def claim_result(self) -> ClaimResult:
        """Verdict on the claim by the runs, empty while runs are missing, or a study that it is tested on. Raises
        `UserError` if its file needs values that the runs do not have."""
        e = self.figure.entry
        if self.state != "drawn" or self.absent_studies:
            return ClaimResult("", "", ())
        try:
            return evaluate_claim(e.part, e.observation, e.verdict, self.evidence_of, self._names)
        except UserError as error:
            raise UserError(f"{self.figure.paper}/{self.figure.name}.toml: {error}") from None

    @functools.cached_property
    def absent_studies(self) -> list[str]:
        """Studies other than its own that its tests and its text take numbers from, and that lack results here."""
        e = self.figure.entry
        return self.absent(*(part.study for part in e.part if part.study), *STUDY.findall(e.observation))

    def absent(self, *studies: str) -> list[str]:
        """Select the studies that lack results here, sorted."""
        return sorted(s for s in {*studies} if not _has_results(self.bundles, s, self.scale))

    @property
    def options(self) -> dict[str, Any]:
        """Options of its drawing function."""
        options = dict(self.figure.entry.options)
        return options | {"beside": self.companions} if self.figure.entry.beside else options

    @property
    def _names(self) -> dict[str, str]:
        """Names of algorithms in its texts: as in the figure, with the values of the options on its axes."""
        e = self.figure.entry
        axes = [(e.options[key], e.options.get(name, e.options[key])) for key, name in AXES if key in e.options]
        names = dict(e.names)
        for label in {run.label for run in self.results}:
            base_label = without_options(label, *(option for option, _ in axes))
            if base_label in e.names and label not in names:
                values = [f"{name} = {option_values(self.results, o)[label]:g}" for o, name in axes]
                names[label] = ", ".join([e.names[base_label], *values])
        return names

    @property
    def state(self) -> str:
        """`drawn`, `draft` (runs are missing) or `no bundle`."""
        if self.bundle is None or self.table is None:
            return "no bundle"
        return "drawn" if self.bundle.complete else "draft"

    def command(self, verb: str) -> str:
        """Command of the verb `figures`, to draw it again, or `reproduce`, to run it again."""
        fig = self.figure.number or self.figure.name
        return invocation(verb, paper=self.figure.paper, fig=fig, **at_scale(self.scale))

    @property
    def source(self) -> str:
        """Digest of its runs and of its file's drawing options, 16 hex digits. A picture carries it, so that one drawn
        from other runs is recognised."""
        entry = {key: value for key, value in asdict(self.figure.entry).items() if key not in TEXTS}
        entry = {key: value for key, value in entry.items() if key not in LATER or value}
        runs = [] if self.bundle is None else sorted(run.seal for run in self.bundle.runs)
        runs += sorted(run.seal for results in self.companions.values() for run in results)
        content = json.dumps([self.figure.heading, entry, runs], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def at_scale(scale: str) -> dict[str, str]:
    """Arguments of `invocation` for a scale."""
    return {} if scale == "small" else {"scale": scale}


def _has_results(bundles: Path, study: str, scale: str) -> bool:
    """Return whether a study's bundle is there, or a folder with all of its runs: a sweep may have been stopped."""
    path = find_bundle(bundles, study, scale)
    spec = paper_figure_specs.experiments() / f"{study}.toml"
    if is_packed(path) or not spec.is_file():
        return path.is_dir()
    runs = read_study_runs(path, read_study(spec), scale)
    return runs is not None and runs.complete


def load_figures(
    figures: Sequence[PaperFigure], bundles: Path, scale: str = "small", **options: Any
) -> list[GalleryFigure]:
    """Read the runs of each figure from `bundles`. A table (`Results.table` with these options) is computed once for
    all figures that share it."""
    check_scale_name(scale)

    @functools.cache
    def study_runs_of(study: str) -> StudyRuns | None:
        request = next(f.request for f in figures if f.entry.study == study)
        if scale != "small" and not request.paper:
            return None
        return read_study_runs(find_bundle(bundles, study, scale), request, scale)

    @functools.cache
    def runs_of(study: str) -> Results:
        bundle = study_runs_of(study)
        return Results.of(bundle.runs if bundle else ())

    @functools.cache
    def table_of(study: str, score: str, normalise: str) -> Table | None:
        bundle = study_runs_of(study)
        if bundle is None or not bundle.runs:
            return None
        results = runs_of(study)
        table = results.table(bundle.requests, score=score, normalise=normalise, **options)
        note = table.settings["constants_note"].replace("this table", "the study")
        return replace(table, settings=table.settings | {"scale": f"{scale} scale", "constants_note": note})

    def evidence_of(own_study: str, score: str, normalise: str, study: str) -> Evidence:
        """Return the runs of the figure's study, or of another one by name."""
        if not study:
            table = table_of(own_study, score, normalise)
            assert table is not None
            return Evidence(runs_of(own_study), table)
        return other_evidence(study, score, normalise)

    @functools.cache
    def other_evidence(study: str, score: str, normalise: str) -> Evidence:
        path = find_bundle(bundles, study, scale)
        if not path.is_dir():
            raise UserError(f"study={study!r} has no results in {bundles}")
        spec = path / "study.toml"
        request = read_study(spec) if spec.is_file() else None
        study_runs = read_study_runs(path, request, scale) if request and request.reuse else None
        results = Results.of(study_runs.runs if study_runs else Store(path).read_all())
        return Evidence(results, results.table(score=score, normalise=normalise, **options))

    out = []
    for f in figures:
        e = f.entry
        bundle, results, table = study_runs_of(e.study), runs_of(e.study), table_of(e.study, e.score, e.normalise)
        if table:
            looks = {"names": e.names, "values": option_values(results, e.ordered) if e.ordered else {}}
            table = show_single_runs(table, results.grid)
            table = replace(table, settings=table.settings | looks)
        if e.only and bundle and table:  # scores stay normalised by the whole study
            bundle, results = bundle.restrict(e.only), results.only(e.only)
            series = sorted({r["algorithm"] for r in table.rows})
            rows = [r for r in table.rows if r["algorithm"] in e.only]
            table = replace(table, rows=rows, settings=table.settings | {"series": series})
        evidence = functools.partial(evidence_of, e.study, e.score, e.normalise)
        present = [name for name in e.beside if find_bundle(bundles, name, scale).is_dir()]
        companions = {name: other_evidence(name, e.score, e.normalise).results for name in present}
        out.append(GalleryFigure(f, bundle, results, table, evidence, companions, scale, bundles))
    return out
