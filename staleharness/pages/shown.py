"""A paper's figures with the results that there are to fill them."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..base.invocation import invocation
from ..base.text import plural
from ..statistics.results import Results
from ..statistics.table import Table
from ..store.bundle import Bundle, bundle_path, read_bundle
from ..store.study import check_scale_name
from .papers import PaperFigure

DRAFT = "DRAFT, runs are missing"
TEXTS = ("question", "claim", "asked", "saw", "verdict")  # of an entry; they stand beside its picture


@dataclass(frozen=True)
class Shown:
    """A figure with what there is to fill it."""

    figure: PaperFigure
    bundle: Bundle | None  # of the algorithms that are shown
    results: Results  # its runs
    table: Table | None

    @property
    def state(self) -> str:
        """`drawn`, `draft` (runs are missing) or `no bundle`."""
        if self.bundle is None or self.table is None:
            return "no bundle"
        return "drawn" if self.bundle.complete else "draft"

    @property
    def redraw(self) -> str:
        return invocation("figures", paper=self.figure.paper, fig=self.figure.number or self.figure.name)

    @property
    def rerun(self) -> str:
        return invocation("reproduce", paper=self.figure.paper, fig=self.figure.number or self.figure.name)

    @property
    def source(self) -> str:
        """What a picture of it is drawn from, as 16 hex digits: the runs, and what its file says of the drawing. The
        picture carries it, so that one of other runs can be told."""
        entry = {key: value for key, value in asdict(self.figure.entry).items() if key not in TEXTS}
        if not entry["names"]:  # pictures drawn before there were names stay what they are
            del entry["names"]
        runs = [] if self.bundle is None else sorted(run.seal for run in self.bundle.runs)
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
            return f"{text} (The folder holds {plural(others, 'run')} of other settings.)" if others else text
        s, asked = self.table.settings, self.figure.question.at(self.bundle.scale)
        ks, size = ", ".join(map(str, s["capacities"])), made(self.table)
        algorithms = len({r["algorithm"] for r in self.table.rows})
        text = (
            f"n = {plural(asked.seeds, 'seed')} × {plural(len(s['envs']), 'environment')} ({', '.join(s['envs'])}), "
            f"{plural(algorithms, 'algorithm')}, K = {ks}: "
            f"{len(self.bundle.runs)} of {plural(len(self.bundle.expected), 'run')}. {size[0].upper()}{size[1:]}. "
            f"Intervals: {s['level']:.0%} stratified bootstrap, {s['reps']:,} resamples. "
            f"Scores: {scale_of(self.table)} ({s['constants_note']})."
        )
        if self.bundle.strangers:
            text += f" {plural(self.bundle.strangers, 'run')} of other settings in the folder left out."
        return text if self.bundle.complete else f"{DRAFT}. {text}"


def show(figures: Sequence[PaperFigure], bundles: Path, scale: str = "small", **options: Any) -> list[Shown]:
    """What there is of each figure, read from `bundles`. A table (`Results.table` with these options) is computed
    once for all figures that show the same."""
    check_scale_name(scale)

    @functools.cache
    def whole(study: str) -> Bundle | None:
        question = next(f.question for f in figures if f.entry.study == study)
        if scale != "small" and not question.paper:
            return None
        return read_bundle(bundle_path(bundles, study, scale), question, scale)

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
        found = results.table(bundle.expected, score=score, normalise=normalise, **options)
        note = found.settings["constants_note"].replace("this table", "the study")
        return replace(found, settings=found.settings | {"scale": f"{scale} scale", "constants_note": note})

    out = []
    for f in figures:
        e = f.entry
        bundle, results, table = whole(e.study), runs_of(e.study), table_of(e.study, e.score, e.normalise)
        if table:
            table = replace(table, settings=table.settings | {"names": e.names})
        if e.only and bundle and table:  # the scale stays that of the whole study
            bundle, results = bundle.of(e.only), results.only(e.only)
            series = sorted({r["algorithm"] for r in table.rows})
            rows = [r for r in table.rows if r["algorithm"] in e.only]
            table = replace(table, rows=rows, settings=table.settings | {"series": series})
        out.append(Shown(f, bundle, results, table))
    return out
