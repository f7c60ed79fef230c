"""Advice on K and on methods: score against lag of stored runs, compared with a pipeline's lag and a real system's.

Per method and environment: the staleness budget, the share of the synchronous score retained at each lag, and the seeds
needed to see a loss. With a pipeline: score and time per step under each cap, the fastest cap within the budget, and
the best method at each speed. With a log: the place of its mean lag on the curves. No number is given beyond the data;
curves without one are in `refusals`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base.text_formatting import listing, span
from ..errors import UserError
from ..logs.lag_log_reader import LagLog
from ..pipeline.pipeline_summary import CapResult
from ..store.stored_run import StoredRun
from .advice_per_method import AdviceQuestion, MethodAdvice, advise_on_method
from .bootstrap import LEVEL, REPS, percentiles
from .lag_curve import Refusal, lag_curves
from .log_advice_text import conclusion
from .scores import AUTO, resolve_auto, score_in_words
from .significance_and_power import ALPHA, POWER, seeds_needed, spread
from .staleness_budget import KEEP
from .table import extent
from .table_notes import on_starts


@dataclass(frozen=True)
class Advice:
    """Advice per method, with the settings it was computed with; `to_json` is what `staleharness advise --json`
    prints."""

    methods: list[MethodAdvice]
    refusals: list[Refusal]
    caps: list[CapResult]
    log: LagLog | None
    frontier: list[dict[str, Any]]  # per environment and speed, where there is a pipeline
    settings: dict[str, Any]
    notes: list[str]

    def conclusion(self, env: str) -> list[str]:
        """Sentences on the lag of the log; none without a log."""
        return [] if self.log is None else conclusion(env, self.on(env), self.log, self.settings["keep"])

    @property
    def envs(self) -> list[str]:
        return sorted({m.curve.env for m in self.methods})

    def on(self, env: str) -> list[MethodAdvice]:
        return [m for m in self.methods if m.curve.env == env]

    def to_json(self) -> dict[str, Any]:
        return {
            "methods": [m.row for m in self.methods],
            "refused": [{"algorithm": r.algorithm, "env": r.env, "why": r.reason} for r in self.refusals],
            "pipeline": [c.to_json() for c in self.caps],
            "log": None if self.log is None else self.log.to_json(),
            "conclusions": {env: self.conclusion(env) for env in self.envs if self.log is not None},
            "frontier": self.frontier,
            "settings": self.settings,
            "notes": self.notes,
        }


def advise(
    runs: Iterable[StoredRun],
    *,
    caps: Sequence[CapResult] = (),
    log: LagLog | None = None,
    keep: float = KEEP,
    updates: float | None = None,
    score: str = AUTO,
    zero: str | float = AUTO,
    reps: int = REPS,
) -> Advice:
    """Derive advice from stored runs, and from a pipeline under several caps and a log where they are given.

    `keep`: share of the synchronous IQM to retain. `updates`: gradient steps of one version of the pipeline or log;
    without it a version counts as a phase. `zero`: see `lag_curve.lag_curves`. Raises `UserError` where there is no
    curve at all.
    """
    if not 0 < keep < 1:
        raise UserError(f"KEEP={keep:g} must be above 0 and below 1")
    if updates is not None and not 0 < updates < np.inf:
        raise UserError(f"UPDATES={updates:g} must be above 0")
    if updates is not None and not caps and (log is None or log.unit == "gradient_steps"):
        remedy = "give LOG=FILE, or PRESET=async"
        if log is not None:
            remedy = f"the lags of LOG={log.file} are in gradient steps, so leave UPDATES out"
        raise UserError(f"UPDATES counts gradient steps per version of a pipeline or log: {remedy}")
    runs = list(runs)
    score_kind, _ = resolve_auto(runs, score, AUTO)
    question = AdviceQuestion(tuple(caps), log, keep, updates, score_kind, reps)
    curves, refusals = lag_curves(runs, score=score_kind, zero=zero)
    methods = []
    for curve in curves:
        try:
            methods.append(advise_on_method(curve, question))
        except UserError as error:
            refusals.append(Refusal(curve.algorithm, curve.env, str(error)))
    if not methods:
        raise UserError(f"no advice from these results: {_reasons(refusals) or 'there are no runs'}")
    settings = {
        "keep": keep,
        "updates": updates,
        "score": score_kind,
        "measure": score_in_words(runs, score_kind),
        "level": LEVEL,
        "reps": reps,
        "power": POWER,
        "alpha": ALPHA,
        **extent(runs),
    }
    envs = sorted({m.curve.env for m in methods})
    best = [p for env in envs for p in frontier(env, [m for m in methods if m.curve.env == env], caps)]
    notes = [*_notes(methods, caps, log, updates), *on_starts(runs)]
    return Advice(methods, sorted(refusals), list(caps), log, best, settings, notes)


def _reasons(refusals: Sequence[Refusal]) -> str:
    """Join the distinct reasons, each with its first curve."""
    groups: dict[str, list[Refusal]] = {}
    for refusal in refusals:
        groups.setdefault(refusal.reason, []).append(refusal)
    return "; ".join(
        f"{reason} ({r[0].algorithm} on {r[0].env}{f' and {len(r) - 1} more' if len(r) > 1 else ''})"
        for reason, r in groups.items()
    )


def _settings_with_fewer_seeds(methods: Sequence[MethodAdvice]) -> list[str]:
    """List settings with fewer seeds than others of their curve, as happens where runs diverged."""
    smaller = []
    for m in methods:
        sizes = [len(scores) for scores in m.curve.scores]
        smaller += [
            f"{m.curve.algorithm} on {m.curve.env} at K={k} ({n} of {max(sizes)})"
            for k, n in zip(m.curve.capacities, sizes, strict=True)
            if n < max(sizes)
        ]
    return smaller


def _notes(
    methods: Sequence[MethodAdvice], caps: Sequence[CapResult], log: LagLog | None, updates: float | None
) -> list[str]:
    notes = []
    if small := [m.curve.n for m in methods if m.curve.n < 10]:
        notes.append(
            f"with {span(small)} seeds a nominal 95 % interval of a budget holds it in about "
            f"{'70' if min(small) < 5 else '85 to 90'} % of cases (docs/advise.md)"
        )
    if smaller := _settings_with_fewer_seeds(methods):
        notes.append(
            f"fewer seeds than elsewhere: {listing(smaller, 4)}; runs that diverged have no score, so the share kept "
            "there is that of the others"
        )
    zeros = sorted({m.curve.zero_note for m in methods})
    notes.append(f"shares are counted from {' or '.join(zeros)}")
    smallest = min(float(m.curve.lags[1]) for m in methods)
    lags = [m.row["log"]["lag"] for m in methods if log] + [p["lag"] for m in methods for p in m.row.get("caps", ())]
    if any(0 < lag < smallest for lag in lags):
        notes.append(f"between lag 0 and the smallest measured one ({smallest:.1f}) shares are interpolated linearly")
    if caps:
        notes.append(
            "take: the fastest cap within the budget; with ? it is not within the low end of the budget's interval"
        )
    if log is not None and log.over == "rows":
        notes.append(
            "budgets and shares are at mean lags over rows, as the log's is; where long rows are older, the mean "
            "over decisions is larger (`staleharness pipeline` shows both)"
        )
    else:
        notes.append("budgets are mean lags over decisions" + (", as the log's is" if log else ""))
    if caps or (log is not None and log.unit == "versions"):
        a_phase = "a phase of the runs; UPDATES=N counts its gradient steps"
        version = a_phase if updates is None else f"{updates:g} gradient steps"
        notes.append(f"a version of the pipeline or log counts as {version}")
    return notes


def frontier(env: str, methods: Sequence[MethodAdvice], caps: Sequence[CapResult]) -> list[dict[str, Any]]:
    """Select the highest score at each speed, fastest first: the best method under each cap, without caps under which
    no method scores higher than under a faster one."""
    points: list[dict[str, Any]] = []
    for i in sorted(range(len(caps)), key=lambda i: (caps[i].step_seconds, caps[i].lag)):
        cap = caps[i]
        with_score = [m for m in methods if cap.name in m.scores]
        if not with_score:
            continue
        best = max(with_score, key=lambda m: float(m.row["caps"][i]["score"]))
        point = best.row["caps"][i]
        if points and point["score"] <= points[-1]["score"]:
            continue
        low, high = percentiles(best.scores[cap.name])
        points.append(
            {
                "env": env,
                "algorithm": best.curve.algorithm,
                "cap": cap.cap,
                "lag": point["lag"],
                "step_seconds": cap.step_seconds,
                "speed_up": caps[0].step_seconds / cap.step_seconds,
                "score": point["score"],
                "score_low": float(low),
                "score_high": float(high),
                "cannot_be_told_from": [
                    {"algorithm": m.curve.algorithm, "seeds_to_tell": _seeds(m, best, i)}
                    for m in with_score
                    if m is not best and _alike(m, best, cap)
                ],
                "binds": cap.binds,
                "why": cap.explanation,
            }
        )
    return points


def _seeds(a: MethodAdvice, b: MethodAdvice, i: int) -> int | None:
    """Return the seeds per method that a t-test needs to see this difference of scores, given the spread at settings
    of nearby lags."""
    gap = float(a.row["caps"][i]["score"]) - float(b.row["caps"][i]["score"])
    variances = [spread(m.curve.around(m.row["caps"][i]["lag"])) ** 2 for m in (a, b)]
    deviation = (sum(variances) / 2) ** 0.5
    return seeds_needed(gap / deviation) if deviation > 0 else None


def _alike(a: MethodAdvice, b: MethodAdvice, cap: CapResult) -> bool:
    """Return whether the interval of the difference of two scores holds 0."""
    low, high = percentiles(a.scores[cap.name] - b.scores[cap.name])
    return bool(low <= 0 <= high)
