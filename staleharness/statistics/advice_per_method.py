"""Advice on one method in one environment: budget, score under each cap, place of a log on the curve, seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import UserError
from ..logs.lag_log_reader import LagLog
from ..pipeline.pipeline_summary import CapResult
from .bootstrap import iqm, percentiles, stable_seed
from .lag_curve import LagCurve
from .scores import Array
from .significance_and_power import seeds_needed, simulated_power, spread
from .slowdown import slowdowns
from .staleness_budget import Limit, RetentionCurve, retention_curve
from .t_tests_and_intervals import welch

Budget = tuple[Limit, Limit, Limit]  # estimate, low and high end of its interval
UPDATES = (1.0, 4.0, 16.0)  # gradient steps per version for which a log's verdict is also given
CLEAR = 5  # percentile of the resampled synchronous scores that has to be above zero


@dataclass(frozen=True)
class AdviceQuestion:
    """Pipeline caps, log and options to compare the stored runs with."""

    caps: tuple[CapResult, ...]
    log: LagLog | None
    keep: float  # share of the synchronous IQM to retain
    updates: float | None  # gradient steps of a version; None: a version counts as a phase
    score: str
    reps: int


@dataclass(frozen=True)
class MethodAdvice:
    """Advice from one curve."""

    curve: LagCurve
    retention: RetentionCurve
    row: dict[str, Any]  # JSON data
    scores: dict[str, Array]  # name of a cap -> resampled scores [reps], where the data reach


def advise_on_method(curve: LagCurve, question: AdviceQuestion) -> MethodAdvice:
    """Derive all advice from one curve. Raises `UserError` where its synchronous runs are not clearly above zero."""
    retention = retention_curve(curve, question.reps)
    synchronous = float(iqm(curve.scores[0]))
    if np.percentile(retention.reference, CLEAR) <= 0:
        raise UserError(
            f"its synchronous runs are not clearly above zero ({curve.zero_note}): "
            f"IQM {synchronous + curve.zero:.3g} against {curve.zero:.3g}"
        )
    budget = retention.budget(question.keep)
    limits = zip(("budget", "budget_low", "budget_high"), budget, strict=True)
    row: dict[str, Any] = {
        "algorithm": curve.algorithm,
        "env": curve.env,
        "n": curve.n,
        "resampled": retention.resampling,
        "synchronous": synchronous + curve.zero,
        "zero": curve.zero,
        "zero_is": curve.zero_note,
        "gradient_steps_per_phase": curve.gradient_steps_per_phase,
        **{name: asdict(end) for name, end in limits},
        "points": [_point(curve, retention, i) for i in range(len(curve.lags))],
        **_seeds(curve, (1 - question.keep) * synchronous),
        "slowdowns": _slowdowns(curve, question.score),
    }
    scores: dict[str, Array] = {}
    if question.caps:
        row["caps"] = []
        for cap in question.caps:
            lag = _in_phases(cap.lag, "versions", curve, question.updates)
            point: dict[str, Any] = {"cap": cap.cap, "lag": lag, "step_seconds": cap.step_seconds, "binds": cap.binds}
            point |= _share_at(retention, lag)
            if point["kept"] is not None:
                point["score"] = curve.zero + synchronous * point["kept"]
                scores[cap.name] = curve.zero + retention.reference * retention.replicates_at(lag)
            row["caps"].append(point)
        row["recommended"] = _fastest_cap(row["caps"], budget)
    if (log := question.log) is not None:
        row["log"] = _place_of_log(retention, budget, curve, log, question.updates)
    return MethodAdvice(curve, retention, row, scores)


def _point(curve: LagCurve, retention: RetentionCurve, i: int) -> dict[str, Any]:
    """Measurements at lag i, with a test against the synchronous runs."""
    a, b = curve.scores[0], curve.scores[i]
    low, high = percentiles(retention.replicates[:, i])
    deviation = spread([a, b])
    gap = float(b.mean() - a.mean())
    return {
        "k": curve.capacities[i],
        "lag": float(curve.lags[i]),
        "n": len(b),
        "gradient_lag": None if curve.gradient_lags is None else float(curve.gradient_lags[i]),
        "iqm": float(iqm(b)) + curve.zero,
        "kept_as_measured": float(retention.raw[i]),
        "kept": float(retention.fit[i]),
        "kept_low": float(low),
        "kept_high": float(high),
        "difference": gap,
        "p": welch([a], [b]).p if i else None,
        "seeds_to_see_it": seeds_needed(gap / deviation) if i and deviation > 0 else None,
    }


def _seeds(curve: LagCurve, loss: float) -> dict[str, Any]:
    """Seeds of each setting needed to see a loss, by the spread of the synchronous runs, and their power in simulated
    tests."""
    fresh = curve.scores[:1]
    deviation = spread(fresh)
    seeds = seeds_needed(loss / deviation) if deviation > 0 else 2
    rng = np.random.default_rng(stable_seed("power", curve.algorithm, curve.env))
    return {
        "spread": deviation,
        "loss_to_see": loss,
        "seeds_to_see_it": seeds,
        "seeds_checked": None if seeds is None else simulated_power(fresh, loss, seeds, rng),
    }


def _slowdowns(curve: LagCurve, score: str) -> list[dict[str, Any]] | None:
    """Slowdowns to the default level; None where the learning curves do not allow it."""
    try:
        return [s.to_json() for s in slowdowns(curve, score)]
    except UserError:
        return None


def _in_phases(lag: float, unit: str, curve: LagCurve, updates: float | None) -> float:
    """Convert a lag to phases. Raises `UserError` where gradient steps are needed and were not recorded."""
    if unit == "versions" and updates is None:
        return lag
    if not (per_phase := curve.gradient_steps_per_phase):
        raise UserError("its runs do not say how many gradient steps a phase has")
    return lag * (1.0 if unit == "gradient_steps" or updates is None else updates) / per_phase


def _share_at(retention: RetentionCurve, lag: float) -> dict[str, Any]:
    shares = retention.at(lag)
    if shares is None:
        names: dict[str, Any] = dict.fromkeys(("kept", "kept_low", "kept_high", "score"))
        return names | {"refused": f"lag {lag:.1f} is beyond the data (largest measured: {retention.lags[-1]:.1f})"}
    return {**dict(zip(("kept", "kept_low", "kept_high"), shares, strict=True)), "refused": None}


def _fastest_cap(points: Sequence[dict[str, Any]], budget: Budget) -> dict[str, Any] | None:
    """Return the cap with the fastest steps within the budget (of equally fast ones, the least lag), or None.

    `sure`: also within the low end of the budget's interval.
    """
    within = [p for p in points if p["lag"] == 0 or budget[0].allows(p["lag"])]
    if not within:
        return None
    best = min(within, key=lambda p: (p["step_seconds"], p["lag"]))
    return {**best, "sure": best["lag"] == 0 or budget[1].allows(best["lag"])}


def _place_of_log(
    retention: RetentionCurve, budget: Budget, curve: LagCurve, log: LagLog, updates: float | None
) -> dict[str, Any]:
    """Share retained at a log's mean lag and the verdict; the same at the lag of its last quarter where it drifts, and
    for other numbers of gradient steps in a version.

    A mean over rows is compared with the runs' means over rows. `lag` is in phases over decisions, `row_lag` over rows.
    """

    def at(lag: float, steps: float | None) -> dict[str, Any]:
        phases = _in_phases(lag, log.unit, curve, steps)
        decisions = curve.from_rows(phases) if log.over == "rows" else phases
        return {"row_lag": curve.to_rows(decisions), "updates": steps, **_verdict(retention, decisions, budget)}

    others: list[float | None] = []
    if log.unit == "versions" and curve.gradient_steps_per_phase:
        others = [steps for steps in (*UPDATES, None) if steps != updates]
    return {
        "over": log.over,
        **at(log.mean, updates),
        "other_updates": [at(log.mean, steps) for steps in others],
        "last_quarter": None if log.drift is None else at(log.drift.last, updates),
    }


def _verdict(retention: RetentionCurve, lag: float, budget: Budget) -> dict[str, Any]:
    """Share retained at a mean lag over decisions, and the verdict that the interval of the budget allows."""
    share = _share_at(retention, lag)
    if share["kept"] is None:
        verdict = "beyond the data"
    elif lag == 0 or budget[1].allows(lag):
        verdict = "kept"
    else:
        verdict = "lost" if budget[2].forbids(lag) else "cannot tell"
    return {"lag": lag, **share, "verdict": verdict}
