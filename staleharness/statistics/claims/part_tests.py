"""Parts of a claim tested on stored runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ...errors import UserError
from ...store.stored_run import StoredRun
from ..labels import display_label
from ..scores import Array
from .claim import ClaimPart, Contrast, Outcome, combine_outcomes, contrast
from .early_warning import WARNINGS, count_warnings
from .run_measures import Evidence, measure

NAMES = {
    "area": "area under the curve",
    "kept": "share kept",
    "clipped": "share without gradient",
    "tv_end": "total variation",
    "tv_data": "backward total variation",
    "grad_norm": "norm of the gradient",
    "algorithm/filter_active": "share of minibatches filtered",
    "second_moment_ratio": "second moment",
    "fell": "step of the fall",
    "seconds": "training time",
    "seconds/proximal": "seconds of the proximal step",
    "seconds/loss": "seconds of the loss",
}
PERCENT = ("kept", "clipped", "warned", "warned first", "algorithm/filter_active")


@dataclass(frozen=True)
class PartComparison:
    """One comparison of a part."""

    text: str  # terms, in words
    contrast: Contrast | None  # None without data
    outcome: Outcome
    problem: str = ""  # reason for None


@dataclass(frozen=True)
class PartResult:
    """A part with its comparisons."""

    part: ClaimPart
    rows: Sequence[PartComparison]

    @property
    def outcome(self) -> Outcome:
        return combine_outcomes([row.outcome for row in self.rows])


@dataclass(frozen=True)
class Term:
    """A mean over seeds in a comparison, with its sign; `share`: divided by that at K = 1."""

    label: str
    k: int
    sign: float
    share: bool


def evaluate_part(part: ClaimPart, evidence: Evidence, names: Mapping[str, str] | None = None) -> PartResult:
    """Make every comparison of a part. Raises `UserError` where the study lacks its algorithms or capacities."""
    if part.untested:
        return PartResult(part, [PartComparison("not tested", None, "open", part.untested)])
    evidence.check([*part.of, *part.over])
    if part.what in WARNINGS:
        counts = count_warnings([run for run in evidence.results if not part.of or run.label in part.of])
        difference = counts.hits_over_half if part.what == "warned first" else counts.hits_over_alarms
        return PartResult(part, [PartComparison(counts.text, difference, difference.outcome(part.be, part.margin))])
    ks = [evidence.capacity(k) for k in part.k] or [evidence.capacity(None)]
    cells = product(ks, part.of, part.over or ("",))
    rows = [_row(part, evidence, label, other, k, names or {}) for k, label, other in cells if other != label]
    return PartResult(part, rows)


def _row(
    part: ClaimPart, evidence: Evidence, label: str, other: str, k: int, names: Mapping[str, str]
) -> PartComparison:
    share = part.what == "kept"
    terms = [Term(label, k, 1.0, share)]
    other_k = k if part.over_k is None or part.beyond else part.over_k
    terms += [Term(other, other_k, -1.0, share)] if other else []
    if part.over_k is not None and (part.beyond or not other):
        # alone: the same method at another K; beyond: less the same difference there
        terms += [Term(t.label, part.over_k, -t.sign, share) for t in list(terms)]
    difference: Contrast | None = None
    problem = ""
    try:
        difference = compare_terms(evidence, terms, part)
    except UserError as error:
        problem = str(error)
    text = _text(part, label, other, k, names, len(evidence.results.grid.capacities) > 1)
    return PartComparison(text, difference, difference.outcome(part.be, part.margin) if difference else "open", problem)


def compare_terms(evidence: Evidence, terms: Sequence[Term], part: ClaimPart) -> Contrast:
    """Compute the signed sum of the terms over their common seeds, in the environments that have some. Raises
    `UserError` where there is none, or no share or ratio is defined."""
    cells = list(dict.fromkeys([(t.label, t.k) for t in terms] + [(t.label, 1) for t in terms if t.share]))
    plain = measure(part.what, evidence, part.phases, part.reduce)

    def logarithm(run: StoredRun) -> float:
        if (value := plain(run)) <= 0:
            what = f"{part.what} of {run.label}, seed {run.seed}"
            raise UserError(f"{what}, is {value:g}: a ratio is of values above 0")
        return math.log(value)

    values = logarithm if part.ratio else plain
    tasks: dict[str, Array] = {}
    for env in evidence.envs(part.env):
        held = [evidence.runs(label, k, env) for label, k in cells]
        seeds = sorted(set.intersection(*(set(h) for h in held)))
        if not seeds:
            continue
        for t in terms:
            if t.share and not evidence.has_learned(t.label, env):
                raise UserError(f"{t.label} did not learn on {env} without lag")
        tasks[env] = np.array([[values(h[seed]) for seed in seeds] for h in held])
    if not tasks:
        raise UserError("no seed has all runs that are compared")
    than = part.than or 0.0
    return contrast(tasks, _statistic(terms, cells, math.log(than) if part.ratio and than else than))


def _statistic(terms: Sequence[Term], cells: Sequence[tuple[str, int]], than: float) -> Callable[[Array], float]:
    def of(means: Array) -> float:
        total = -than
        for t in terms:
            value = means[cells.index((t.label, t.k))]
            total += t.sign * float(value / means[cells.index((t.label, 1))] if t.share else value)
        return total

    return of


def _text(part: ClaimPart, label: str, other: str, k: int, names: Mapping[str, str], several: bool) -> str:
    """Describe a comparison: `share kept, VACO − PPO-clip, K = 16`; without K if there is only one."""
    what = NAMES.get(part.what, part.what.replace("_", " "))
    if part.than is not None:
        what += f" {'/' if part.ratio else '−'} {part.than:g}"
    sign = "/" if part.ratio else "−"
    who = display_label(label, names) + (f" {sign} {display_label(other, names)}" if other else "")
    where = f"K = {k}" if several else ""
    if part.over_k is not None:
        where += f" {sign} K = {part.over_k}"
    if part.reduce in ("change", "jump", "turn"):
        what += f" ({part.reduce})"
    when = f"phases {part.phases[0]} to {part.phases[1] - 1}" if part.phases else ""
    return ", ".join(filter(None, [what, who, where, when, part.env, part.study]))
