"""The highest score at each speed of a pipeline, and the methods that cannot be told from the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..pipeline.caps import Cap
from .advised import Method
from .budget import TAILS
from .power import seeds_needed, spread


def frontier(env: str, methods: Sequence[Method], caps: Sequence[Cap]) -> list[dict[str, Any]]:
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
        found.append(
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
                    for m in held
                    if m is not best and _alike(m, best, cap)
                ],
                "binds": cap.binds,
                "why": cap.why,
            }
        )
    return found


def _seeds(a: Method, b: Method, i: int) -> int | None:
    """Seeds of each with which a t-test would tell this difference of scores, by the spread of the settings near."""
    gap = float(a.row["caps"][i]["score"]) - float(b.row["caps"][i]["score"])
    variances = [spread(m.curve.around(m.row["caps"][i]["lag"])) ** 2 for m in (a, b)]
    deviation = (sum(variances) / 2) ** 0.5
    return seeds_needed(gap / deviation) if deviation > 0 else None


def _alike(a: Method, b: Method, cap: Cap) -> bool:
    """Whether the interval of the difference of their scores holds 0."""
    low, high = np.percentile(a.scores[cap.name] - b.scores[cap.name], TAILS)
    return bool(low <= 0 <= high)
