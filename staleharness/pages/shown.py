"""A paper's figures with the results that there are to fill them."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..base.text import invocation, plural
from ..errors import UserError
from ..statistics.claims.claim_results import ClaimResult, evaluate_claim
from ..statistics.claims.evidence import Evidence
from ..statistics.labels import display_label, option_values, without_option
from ..statistics.results import Results
from ..statistics.small_samples import COVERAGE, MIN_RUNS, show_single_runs
from ..statistics.table import Table, extent
from ..store.store import Store
from ..store.stored_run import StoredRun
from ..store.study import check_scale_name
from ..store.study_runs import StudyRuns, bundle_path, overlap_with, read_study_runs
from .papers import PaperFigure

DRAFT = "DRAFT, runs are missing"
TEXTS = ("question", "claim", "asked", "saw", "part", "verdict")  # of an entry; they stand beside its picture
AXES = (("option", "name"), ("across", "across_name"))  # options of a drawing whose values lie along an axis
LATER = ("names", "beside", "ordered")  # of an entry; empty ones leave a picture's source what it was


@dataclass(frozen=True)
class Shown:
    """A figure with what there is to fill it."""

    figure: PaperFigure
    bundle: StudyRuns | None  # of the algorithms that are shown
    results: Results  # its runs
    table: Table | None
    evidence_of: Callable[[str], Evidence]  # the runs of a study by name; of its own, all of them, by ""
    beside: Mapping[str, Results] = field(default_factory=dict)  # of the other studies that its drawing shows
    scale: str = "small"  # of the runs

    @functools.cached_property
    def reading(self) -> ClaimResult:
        """The claim held against the runs. While runs are missing nothing is said. Raises `UserError` where its file
        asks for what the runs do not have."""
        e = self.figure.entry
        if self.state != "drawn":
            return ClaimResult("", "", ())
        try:
            return evaluate_claim(e.part, e.saw, e.verdict, self.evidence_of, self._names)
        except UserError as error:
            raise UserError(f"{self.figure.paper}/{self.figure.name}.toml: {error}") from None

    @property
    def options(self) -> dict[str, Any]:
        """Of its drawing function."""
        own = dict(self.figure.entry.options)
        return own | {"beside": self.beside} if self.figure.entry.beside else own

    @property
    def _names(self) -> dict[str, str]:
        """What its texts call an algorithm: as in the figure, with the values of the options that its axes show."""
        e = self.figure.entry
        shown = [(e.options[key], e.options.get(name, e.options[key])) for key, name in AXES if key in e.options]
        names = dict(e.names)
        for label in {run.label for run in self.results}:
            line = label
            for option, _ in shown:
                line = without_option(line, option)
            if line in e.names and label not in names:
                values = [f"{name} = {option_values(self.results, o)[label]:g}" for o, name in shown]
                names[label] = ", ".join([e.names[line], *values])
        return names

    @property
    def state(self) -> str:
        """`drawn`, `draft` (runs are missing) or `no bundle`."""
        if self.bundle is None or self.table is None:
            return "no bundle"
        return "drawn" if self.bundle.complete else "draft"

    @property
    def redraw(self) -> str:
        return self._command("figures")

    @property
    def rerun(self) -> str:
        return self._command("reproduce")

    def _command(self, verb: str) -> str:
        fig = self.figure.number or self.figure.name
        return invocation(verb, paper=self.figure.paper, fig=fig, **at_scale(self.scale))

    @property
    def source(self) -> str:
        """What a picture of it is drawn from, as 16 hex digits: the runs, and what its file says of the drawing. The
        picture carries it, so that one of other runs can be told."""
        entry = {key: value for key, value in asdict(self.figure.entry).items() if key not in TEXTS}
        entry = {key: value for key, value in entry.items() if key not in LATER or value}
        runs = [] if self.bundle is None else sorted(run.seal for run in self.bundle.runs)
        runs += sorted(run.seal for results in self.beside.values() for run in results)
        content = json.dumps([self.figure.heading, entry, runs], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    @property
    def facts(self) -> str:
        """n, interval, normalisation, scale and dates, in words."""
        from ..figures.captions import made
        from ..figures.captions import scale as scale_of

        if self.bundle is None or self.table is None:
            text = f"No bundle yet: `{self.rerun}` makes the runs of the study `{self.figure.entry.study}`."
            others = self.bundle.strangers if self.bundle else 0
            return f"{text} (The folder holds {plural(others, 'run')} with other settings.)" if others else text
        s, asked = self.table.settings, self.figure.question.at(self.bundle.scale)
        ks, size = ", ".join(map(str, s["capacities"])), made(self.table)
        algorithms = len({r["algorithm"] for r in self.table.rows})
        text = (
            f"n = {plural(asked.seeds, 'seed')} × {plural(len(s['envs']), 'environment')} ({', '.join(s['envs'])}), "
            f"{plural(algorithms, 'algorithm')}, K = {ks}: "
            f"{len(self.bundle.runs)} of {plural(len(self.bundle.requests), 'run')}. {size[0].upper()}{size[1:]}. "
            f"Intervals: {s['level']:.0%} stratified bootstrap, {s['reps']:,} resamples. "
            f"Scores: {scale_of(self.table)} ({s['constants_note']})."
        )
        if asked.seeds < MIN_RUNS:
            text += f" {COVERAGE}"
        for name, results in self.beside.items():
            size = made(Table([], [], extent(results)))
            text += f" Beside them: {plural(len(results), 'run')} of `{name}`, {size}."
        text += _shared(self.bundle)
        if self.bundle.strangers:
            text += f" Left out: {plural(self.bundle.strangers, 'run')} in the folder with other settings."
        return text if self.bundle.complete else f"{DRAFT}. {text}"


def at_scale(scale: str) -> dict[str, str]:
    """The values of `invocation` that ask for a scale."""
    return {} if scale == "small" else {"scale": scale}


def _shared(bundle: StudyRuns) -> str:
    """Which of its runs also belong to other studies, and which were repeated for them."""
    shared, text = overlap_with(bundle), ""
    if n := len(shared.same):
        belong = "belongs" if n == 1 else "belong"
        text += (
            f" {n} of these runs ({_who(shared.same)}) also {belong} to {_listed(shared.same_in)}, so the results "
            "there are not independent evidence."
        )
    if n := len(shared.rerun):
        text += (
            f" {plural(n, 'run')} ({_who(shared.rerun)}) {'was' if n == 1 else 'were'} repeated for "
            f"{_listed(shared.rerun_in)} on another kind of processor or by another version of the code, with "
            "different numbers."
        )
    return text


def _listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _who(runs: Sequence[StoredRun]) -> str:
    """Their algorithms, where they are few, and seeds."""
    labels, seeds = sorted({display_label(run.label) for run in runs}), sorted({run.seed for run in runs})
    who = ", ".join(labels) if len(labels) < 4 else f"{len(labels)} algorithms"
    return f"{who}; {'seeds' if len(seeds) > 1 else 'seed'} {', '.join(map(str, seeds))}"


def show(figures: Sequence[PaperFigure], bundles: Path, scale: str = "small", **options: Any) -> list[Shown]:
    """What there is of each figure, read from `bundles`. A table (`Results.table` with these options) is computed
    once for all figures that show the same."""
    check_scale_name(scale)

    @functools.cache
    def whole(study: str) -> StudyRuns | None:
        question = next(f.question for f in figures if f.entry.study == study)
        if scale != "small" and not question.paper:
            return None
        return read_study_runs(bundle_path(bundles, study, scale), question, scale)

    @functools.cache
    def runs_of(study: str) -> Results:
        bundle = whole(study)
        return Results.of(bundle.runs if bundle else ())

    @functools.cache
    def table_of(study: str, score: str, normalise: str) -> Table | None:
        bundle = whole(study)
        if bundle is None or not bundle.runs:
            return None
        results = runs_of(study)
        found = results.table(bundle.requests, score=score, normalise=normalise, **options)
        note = found.settings["constants_note"].replace("this table", "the study")
        return replace(found, settings=found.settings | {"scale": f"{scale} scale", "constants_note": note})

    def evidence_of(own: str, score: str, normalise: str, study: str) -> Evidence:
        """The runs of the figure's study, all of them, or what there is of another one."""
        if not study:
            table = table_of(own, score, normalise)
            assert table is not None
            return Evidence(runs_of(own), table)
        return other(study, score, normalise)

    @functools.cache
    def other(study: str, score: str, normalise: str) -> Evidence:
        path = bundle_path(bundles, study, scale)
        if not path.is_dir():
            raise UserError(f"study={study!r} has no results in {bundles}")
        results = Results.of(Store(path).read_all())
        return Evidence(results, results.table(score=score, normalise=normalise, **options))

    out = []
    for f in figures:
        e = f.entry
        bundle, results, table = whole(e.study), runs_of(e.study), table_of(e.study, e.score, e.normalise)
        if table:
            own = {"names": e.names, "values": option_values(results, e.ordered) if e.ordered else {}}
            table = show_single_runs(table, results)
            table = replace(table, settings=table.settings | own)
        if e.only and bundle and table:  # the scale stays that of the whole study
            bundle, results = bundle.restrict(e.only), results.only(e.only)
            series = sorted({r["algorithm"] for r in table.rows})
            rows = [r for r in table.rows if r["algorithm"] in e.only]
            table = replace(table, rows=rows, settings=table.settings | {"series": series})
        evidence = functools.partial(evidence_of, e.study, e.score, e.normalise)
        there = [name for name in e.beside if bundle_path(bundles, name, scale).is_dir()]
        beside = {name: other(name, e.score, e.normalise).results for name in there}
        out.append(Shown(f, bundle, results, table, evidence, beside, scale))
    return out
