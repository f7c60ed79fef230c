"""Which K and which method: what stored runs say of lag, held against a pipeline's lag and a real system's.

Per method and environment: the staleness budget, the share of the synchronous score kept at each lag, and the seeds
that it takes to see a loss. With a pipeline: score and time per step under each cap, the fastest cap that keeps enough,
and the best method at each speed. With a log: where its mean lag lies on the curves. No number is given beyond the
data; what has none is in `refused`, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UserError
from ..logs.lag_log import LagLog
from ..pipeline.caps import Cap
from ..store.stored_run import StoredRun
from .bootstrap import LEVEL, iqm, stable_seed
from .budget import KEEP, REPS, TAILS, Kept, Limit, kept
from .lag_curve import LagCurve, Refusal, lag_curves
from .power import ALPHA, POWER, p_value, seeds_needed, simulated_power, spread
from .scores import AUTO, Array, measure, usual

Ends = tuple[Limit, Limit, Limit]  # a budget and its interval
CLEAR = 5  # a percentage of resamples, above zero, that a synchronous score must not fall short of


@dataclass(frozen=True)
class Method:
    """What is said of one method on one environment."""

    curve: LagCurve
    kept: Kept
    row: dict[str, Any]  # plain data, see `to_json`
    scores: dict[str, Array]  # name of a cap -> resampled scores [reps], where the data reach


@dataclass(frozen=True)
class Advice:
    methods: list[Method]
    refused: list[Refusal]
    caps: list[Cap]
    log: LagLog | None
    frontier: list[dict[str, Any]]  # per environment and speed, where there is a pipeline
    settings: dict[str, Any]
    notes: list[str]

    @property
    def envs(self) -> list[str]:
        return sorted({m.curve.env for m in self.methods})

    def on(self, env: str) -> list[Method]:
        return [m for m in self.methods if m.curve.env == env]

    def to_json(self) -> dict[str, Any]:
        return {
            "methods": [m.row for m in self.methods], "refused": [r._asdict() for r in self.refused],
            "pipeline": [c.to_json() for c in self.caps], "log": None if self.log is None else self.log.to_json(),
            "frontier": self.frontier, "settings": self.settings, "notes": self.notes,
        }  # fmt: skip


def advise(
    runs: Iterable[StoredRun],
    *,
    caps: Sequence[Cap] = (),
    log: LagLog | None = None,
    keep: float = KEEP,
    updates: float | None = None,
    score: str = AUTO,
    zero: str | float = AUTO,
    reps: int = REPS,
) -> Advice:
    """Advice from stored runs, and from a pipeline under several caps and a log where they are given.

    `keep`: the share of the synchronous IQM that must be kept. `updates`: gradient steps of one version of the pipeline
    or log; without it a version counts as a phase. `zero`: see `lag_curve.lag_curves`. Raises `UserError` where no
    curve can be had at all.
    """
    if not 0 < keep < 1:
        raise UserError(f"KEEP={keep:g} must be above 0 and below 1")
    if updates is not None and not 0 < updates < np.inf:
        raise UserError(f"UPDATES={updates:g} must be above 0")
    runs = list(runs)
    curves, refused = lag_curves(runs, score=score, zero=zero)
    methods = []
    for curve in curves:
        try:
            methods.append(_method(curve, kept(curve, reps), caps, log, keep, updates))
        except UserError as error:
            refused.append(Refusal(curve.algorithm, curve.env, str(error)))
    if not methods:
        told = "; ".join(f"{r.algorithm} on {r.env}: {r.why}" for r in refused[:3])
        more = f"; and {len(refused) - 3} more" if len(refused) > 3 else ""
        raise UserError(f"no advice from these results: {told or 'there are no runs'}{more}")
    found, _ = usual(runs, score, AUTO)
    settings = {
        "keep": keep, "updates": updates, "score": found, "measure": measure(runs, found), "level": LEVEL, "reps": reps,
        "power": POWER, "alpha": ALPHA, "dates": sorted({str(r.record["date"]) for r in runs}),
        "sizes": [list(size) for size in sorted({(r.record["phases"], r.record["steps"]) for r in runs})],
    }  # fmt: skip
    envs = sorted({m.curve.env for m in methods})
    frontier = [p for env in envs for p in _frontier(env, [m for m in methods if m.curve.env == env], caps)]
    refused.sort()
    return Advice(
        methods,
        refused,
        list(caps),
        log,
        frontier,
        settings,
        _notes(methods, caps, log, updates),
    )


def _method(
    curve: LagCurve, share: Kept, caps: Sequence[Cap], log: LagLog | None, keep: float, updates: float | None
) -> Method:
    low, _ = np.percentile(share.reference, (CLEAR, 100 - CLEAR))
    whole = float(iqm(curve.scores[0]))
    if low <= 0:
        raise UserError(
            f"its synchronous runs are not clearly above zero ({curve.zero_note}): "
            f"IQM {whole + curve.zero:.3g} against {curve.zero:.3g}"
        )
    ends = share.budget(keep)
    per_phase = curve.gradient_steps_per_phase
    deviation = spread(curve.scores)
    loss = (1 - keep) * whole
    seeds = seeds_needed(loss / deviation) if deviation > 0 else 2
    rng = np.random.default_rng(stable_seed("power", curve.algorithm, curve.env))
    row: dict[str, Any] = {
        "algorithm": curve.algorithm, "env": curve.env, "n": curve.n, "resampled": share.seeds_resampled,
        "synchronous": whole + curve.zero, "zero": curve.zero, "zero_is": curve.zero_note,
        "gradient_steps_per_phase": per_phase,
        **{name: end.to_json() for name, end in zip(("budget", "budget_low", "budget_high"), ends, strict=True)},
        "points": [_point(curve, share, i) for i in range(len(curve.lags))],
        "spread": deviation, "loss_to_see": loss, "seeds_to_see_it": seeds,
        "seeds_checked": None if seeds is None else simulated_power(curve.scores, loss, seeds, rng),
    }  # fmt: skip
    scores: dict[str, Array] = {}
    if caps:
        row["caps"] = []
        for cap in caps:
            lag = _in_phases(cap.lag, "versions", per_phase, updates)
            at = {"cap": cap.cap, "lag": lag, "step_seconds": cap.step_seconds, **_at(share, lag)}
            if at["kept"] is not None:
                at["score"] = curve.zero + whole * at["kept"]
                scores[cap.name] = curve.zero + share.reference * share.resampled_at(lag)
            row["caps"].append(at)
        row["recommended"] = _recommended(row["caps"], ends)
    if log is not None:
        row["log"] = _placed(share, _in_phases(log.mean, log.unit, per_phase, updates), ends)
    return Method(curve, share, row, scores)


def _point(curve: LagCurve, share: Kept, i: int) -> dict[str, Any]:
    """What was measured at lag i, and whether it can be told from the synchronous runs."""
    a, b = curve.scores[0], curve.scores[i]
    low, high = np.percentile(share.resampled[:, i], TAILS)
    deviation = spread([a, b])
    gap = float(b.mean() - a.mean())
    return {
        "k": curve.capacities[i], "lag": float(curve.lags[i]), "n": len(b),
        "gradient_lag": None if curve.gradient_lags is None else float(curve.gradient_lags[i]),
        "iqm": float(iqm(b)) + curve.zero, "kept_as_measured": float(share.raw[i]), "kept": float(share.fitted[i]),
        "kept_low": float(low), "kept_high": float(high), "difference": gap,
        "p": p_value(a, b) if i else None,
        "seeds_to_see_it": seeds_needed(gap / deviation) if i and deviation > 0 else None,
    }  # fmt: skip


def _in_phases(lag: float, unit: str, per_phase: float | None, updates: float | None) -> float:
    """A lag as the curves count it. Raises `UserError` where gradient steps are needed and were not recorded."""
    if unit == "versions" and updates is None:
        return lag
    if not per_phase:
        raise UserError("its runs do not say how many gradient steps a phase has")
    return lag * (1.0 if unit == "gradient_steps" or updates is None else updates) / per_phase


def _at(share: Kept, lag: float) -> dict[str, Any]:
    found = share.at(lag)
    if found is None:
        names: dict[str, Any] = dict.fromkeys(("kept", "kept_low", "kept_high", "score"))
        return names | {
            "refused": f"lag {lag:.1f} is beyond the data (largest measured: {share.lags[-1]:.1f})"
        }
    return {**dict(zip(("kept", "kept_low", "kept_high"), found, strict=True)), "refused": None}


def _recommended(points: Sequence[dict[str, Any]], ends: Ends) -> dict[str, Any] | None:
    """The cap of the fastest steps whose lag is within the budget; of equally fast ones, that of the least lag. `sure`:
    within the low end of its interval too."""
    allowed = [p for p in points if p["lag"] == 0 or ends[0].allows(p["lag"])]
    if not allowed:
        return None
    best = min(allowed, key=lambda p: (p["step_seconds"], p["lag"]))
    return {**best, "sure": best["lag"] == 0 or ends[1].allows(best["lag"])}


def _placed(share: Kept, lag: float, ends: Ends) -> dict[str, Any]:
    """Where a measured mean lag lies, and what the interval of the budget allows to say."""
    at = _at(share, lag)
    if at["kept"] is None:
        verdict = "beyond the data"
    elif lag == 0 or ends[1].allows(lag):
        verdict = "kept"
    else:
        verdict = "lost" if ends[2].forbids(lag) else "cannot tell"
    return {"lag": lag, **at, "verdict": verdict}


def _frontier(env: str, methods: Sequence[Method], caps: Sequence[Cap]) -> list[dict[str, Any]]:
    """The highest score at each speed, fastest first: the best method under each cap, without caps under which nothing
    scores higher than under a faster one."""
    found: list[dict[str, Any]] = []
    for i in sorted(range(len(caps)), key=lambda i: (caps[i].step_seconds, caps[i].lag)):
        cap = caps[i]
        held = [m for m in methods if cap.name in m.scores]
        if not held:
            continue
        best = max(held, key=lambda m: float(m.row["caps"][i]["score"]))
        point = best.row["caps"][i]
        if found and point["score"] <= found[-1]["score"]:
            continue
        low, high = np.percentile(best.scores[cap.name], TAILS)
        found.append({
            "env": env, "algorithm": best.curve.algorithm, "cap": cap.cap, "lag": point["lag"],
            "step_seconds": cap.step_seconds, "speed_up": caps[0].step_seconds / cap.step_seconds,
            "score": point["score"], "score_low": float(low), "score_high": float(high),
            "cannot_be_told_from": [m.curve.algorithm for m in held if m is not best and _alike(m, best, cap)],
            "binds": cap.binds, "why": cap.why,
        })  # fmt: skip
    return found


def _alike(a: Method, b: Method, cap: Cap) -> bool:
    """Whether the interval of the difference of their scores holds 0."""
    low, high = np.percentile(a.scores[cap.name] - b.scores[cap.name], TAILS)
    return bool(low <= 0 <= high)


def _notes(
    methods: Sequence[Method], caps: Sequence[Cap], log: LagLog | None, updates: float | None
) -> list[str]:
    notes = []
    small = sorted({m.curve.n for m in methods if m.curve.n < 10})
    if small:
        seeds = " to ".join(str(n) for n in dict.fromkeys((small[0], small[-1])))
        notes.append(
            f"with {seeds} seeds a nominal 95 % interval of a budget holds it in about "
            f"{'70' if small[0] < 5 else '85 to 90'} % of cases (docs/advise.md)"
        )
    zeros = sorted({m.curve.zero_note for m in methods})
    notes.append(f"shares are of what is scored above {' or '.join(zeros)}")
    least = min(float(m.curve.lags[1]) for m in methods)
    asked = [m.row["log"]["lag"] for m in methods if log] + [
        p["lag"] for m in methods for p in m.row.get("caps", ())
    ]
    if any(0 < lag < least for lag in asked):
        notes.append(
            f"between lag 0 and the smallest measured one ({least:.1f}) a share is a straight line's"
        )
    if caps:
        notes.append(
            "take: the fastest cap within the budget; with ? it is not within the low end of its interval"
        )
    in_versions = caps or (log is not None and log.unit == "versions")
    if in_versions:
        notes.append(
            "a version of the pipeline or log counts as "
            + (
                "a phase of the runs; UPDATES=N counts its gradient steps"
                if updates is None
                else f"{updates:g} gradient steps"
            )
        )
    return notes
