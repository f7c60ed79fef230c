"""Parts of a claim tested on stored runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from ...errors import UserError
from ...store.stored_run import StoredRun
from ..method_labels import display_label
from ..scores import Array
from ..significance_and_power import ALPHA
from ..t_tests_and_intervals import Contrast, Outcome, contrast
from .claim_schema import ClaimPart, combine_outcomes
from .early_warning import WARNINGS, count_warnings
from .study_evidence import Evidence, measure

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
    "mismatch/kl_k3": "KL of sampler and trainer",
    "eval_deterministic": "greedy score in evaluations",
    "eval_sampled": "sampled score in evaluations",
    "seconds": "training time",
    "seconds/proximal": "seconds of the proximal step",
    "seconds/loss": "seconds of the loss",
}
POOLING_MEASURES = ("score", "area", "return", "kept")  # measures of a policy, the same where training is
PERCENT = ("kept", "clipped", "warned", "warned first", "algorithm/filter_active")


@dataclass(frozen=True)
class PartComparison:
    """One comparison of a part."""

    text: str  # terms, in words
    contrast: Contrast | None  # None without data
    outcome: Outcome  # with Holm's correction, where `holm` is given
    problem: str = ""  # reason for None
    holm: float | None = None  # p of the outcome with Holm's correction for all tests of the figure
    cells: tuple[tuple[str, int], ...] = ()  # method and capacity of each of its means

    def p(self, part: ClaimPart) -> float | None:
        """Two-sided p of the outcome before a correction; None where there is no test, or the part is true by
        definition."""
        if self.contrast is None or part.role == "identity":
            return None
        return self.contrast.p_beyond(part.be, part.margin)


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
    """A mean over seeds in a comparison, with its sign."""

    label: str
    k: int
    sign: float


def evaluate_part(part: ClaimPart, evidence: Evidence, names: Mapping[str, str] | None = None) -> PartResult:
    """Make every comparison of a part. Raises `UserError` where the study lacks its algorithms or capacities."""
    if part.untested:
        return PartResult(part, [PartComparison("not tested", None, "open", part.untested)])
    evidence.check([*part.of, *part.over])
    if part.what in WARNINGS:
        counts = count_warnings([run for run in evidence.results if not part.of or run.label in part.of])
        if shortage := counts.shortage(part.what):
            return PartResult(part, [PartComparison(counts.text, None, "open", shortage)])
        difference = counts.hits_over_half if part.what == "warned first" else counts.hits_over_alarms
        return PartResult(part, [PartComparison(counts.text, difference, difference.outcome(part.be, part.margin))])
    measure(part.what, evidence, part.phases, part.reduce)  # refuses what no run can answer
    ks = [evidence.capacity(k) for k in part.k] or [evidence.capacity(None)]
    cells = product(ks, part.of, part.over or ("",))
    rows = [_row(part, evidence, label, other, k, names or {}) for k, label, other in cells if other != label]
    return PartResult(part, rows)


def correct_part(result: PartResult, holm_of: Mapping[float, float]) -> PartResult:
    """Mark comparisons that are not significant after Holm's correction as open. holm_of: p -> corrected p of the
    figure's tests."""
    rows = []
    for row in result.rows:
        p = row.p(result.part)
        p_holm = None if p is None else holm_of[p]
        keep = p_holm is None or p_holm < ALPHA
        rows.append(replace(row, holm=p_holm, outcome=row.outcome if keep else "open"))
    return replace(result, rows=rows)


def _row(
    part: ClaimPart, evidence: Evidence, label: str, other: str, k: int, names: Mapping[str, str]
) -> PartComparison:
    terms = [Term(label, k, 1.0)]
    other_k = k if part.over_k is None or part.beyond else part.over_k
    terms += [Term(other, other_k, -1.0)] if other else []
    if part.over_k is not None and (part.beyond or not other):
        # alone: the same method at another K; beyond: less the same difference there
        terms += [Term(t.label, part.over_k, -t.sign) for t in list(terms)]
    difference: Contrast | None = None
    problem = ""
    try:
        difference = compare_terms(evidence, terms, part)
    except UserError as error:
        problem = str(error)
    text = _text(part, label, other, k, names, len(evidence.results.grid.capacities) > 1)
    outcome = difference.outcome(part.be, part.margin) if difference else "open"
    return PartComparison(text, difference, outcome, problem, cells=tuple((t.label, t.k) for t in terms))


def compare_terms(evidence: Evidence, terms: Sequence[Term], part: ClaimPart) -> Contrast:
    """Compute the signed sum of the terms in the environments that have runs of all; a share kept is divided by that at
    K = 1. `part.by_seed`: over their common seeds. Otherwise methods that are the same computation at K = 1 share all
    their runs there. Raises `UserError` where there are none, where the terms are one computation, or where no share or
    ratio is defined."""
    pooling, share = not part.by_seed and part.what in POOLING_MEASURES, part.what == "kept"

    def cell(label: str, k: int) -> tuple[str, int]:
        return (evidence.computation(label, k) if pooling else label, k)

    if len(terms) == 2 and cell(terms[0].label, terms[0].k) == cell(terms[1].label, terms[1].k):
        raise UserError("the same computation without lag")
    cells = list(dict.fromkeys([cell(t.label, t.k) for t in terms] + [cell(t.label, 1) for t in terms if share]))
    plain = measure(part.what, evidence, part.phases, part.reduce)

    def logarithm(run: StoredRun) -> float:
        if (value := plain(run)) <= 0:
            subject = f"{part.what} of {run.label}, seed {run.seed}"
            raise UserError(f"{subject}, is {value:g}: a ratio is of values above 0")
        return math.log(value)

    values = logarithm if part.ratio else plain
    tasks: dict[str, list[Array]] = {}
    for env in evidence.envs(part.env):
        if part.by_seed:
            runs_by_seed = [evidence.runs(label, k, env) for label, k in cells]
            seeds = sorted(set.intersection(*map(set, runs_by_seed)))
            runs = [[of_cell[seed] for seed in seeds] for of_cell in runs_by_seed]
        else:
            runs = [evidence.pool(*c, env) if pooling else list(evidence.runs(*c, env).values()) for c in cells]
        if not all(runs):
            continue
        for t in terms:
            if share and not evidence.has_learned(t.label, env):
                raise UserError(f"{t.label} did not learn on {env} without lag")
        tasks[env] = [np.array([values(run) for run in of_cell]) for of_cell in runs]
    if not tasks:
        raise UserError(f"no {'seed' if part.by_seed else 'environment'} has all runs that are compared")
    than = part.than or 0.0
    shift = math.log(than) if part.ratio and than else than

    def signed_sum(means: Array) -> float:
        mean_of, total = dict(zip(cells, means, strict=True)), -shift
        for t in terms:
            value = mean_of[cell(t.label, t.k)]
            if share:
                base = mean_of[cell(t.label, 1)]
                value = value - base if part.ratio else value / base
            total += t.sign * float(value)
        return total

    return contrast(tasks, signed_sum, part.by_seed)


def _text(part: ClaimPart, label: str, other: str, k: int, names: Mapping[str, str], with_k: bool) -> str:
    """Describe a comparison: `share kept, VACO − PPO-clip, K = 16`; without K if there is only one."""
    quantity = NAMES.get(part.what, part.what.replace("_", " "))
    if part.than is not None:
        quantity += f" {'/' if part.ratio else '−'} {part.than:g}"
    sign = "/" if part.ratio else "−"
    labels = display_label(label, names) + (f" {sign} {display_label(other, names)}" if other else "")
    where = f"K = {k}" if with_k else ""
    if part.over_k is not None:
        where += f" {sign} K = {part.over_k}"
    if part.reduce in ("change", "jump", "turn"):
        quantity += f" ({part.reduce})"
    phases = ""
    if part.phases:
        first, last = part.phases[0], part.phases[1] - 1
        phases = f"phase {last}" if first == last else f"phases {first} to {last}"
    return ", ".join(filter(None, [quantity, labels, where, phases, part.env, part.study]))
