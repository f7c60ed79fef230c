"""Summary of a simulated pipeline as plain data: lag, speed, utilisation, the constraint that binds, and its ledger.

Also lag and speed under several caps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import UserError
from .event_simulation import simulate
from .pipeline_event_log import PipelineRecord, segment_lengths, stale_segments, trained_rows
from .pipeline_rows import ledger
from .pipeline_settings import Pipeline

BUSY = 0.95
"""Minimum share of time that trainer or slots must work to be called saturated."""

EXPLANATIONS = {
    "trainer": "the trainer trains or is down all the time: more slots or a higher cap change nothing",
    "generation": "the slots work all the time: the trainer waits for rows",
    "admission": "slots stand idle because the cap lets no row begin",
    "queue": "the queue is full: finished groups find no room in it, or generation pauses",
    "sync": "training stands still while weights are on their way",
    "unit": "slots wait for the slowest row of their unit",
    "down": "workers are down",
}


def summary(record: PipelineRecord) -> dict[str, Any]:
    """Summarise a simulation: its ledger over the whole run, everything else from the step `warm_up` on. Raises
    `UserError` where these steps take no time, as there is no speed then."""
    steps = record.pipeline.steps - record.warm
    span = record.seconds - record.warm_up_end
    if not span:
        raise UserError(
            f"all steps from step {record.warm} on happen at t = {record.seconds:.1f} s, so there is no speed; give "
            "more steps, or train_seconds above 0"
        )
    rows = rows_after_warm_up(record)
    return {
        "pipeline": record.pipeline.to_json(),
        "seed": record.seed,
        "seconds": record.seconds,
        "warm_up": record.warm,
        "step_seconds": span / steps,
        "rows_per_second": float(rows.sum()) / span,
        "tokens_per_second": float(record.tokens[rows].sum()) / span,
        "lag": lag_summary(record),
        **utilisation(record),
        "ledger": ledger(record),
    }


def rows_after_warm_up(record: PipelineRecord) -> NDArray[np.bool_]:
    """Return a mask [n] of the rows that were trained on from the step `warm` on."""
    return np.asarray(trained_rows(record) & (record.step >= record.warm), dtype=np.bool_)


def row_lags(record: PipelineRecord) -> dict[str, NDArray[np.float64]]:
    """Return the lags of the rows after the warm-up: of the version that a row began with, of its oldest and of its
    newest version; and the parts of the first that arose before the queue and in it."""
    rows = rows_after_warm_up(record)
    first = np.searchsorted(record.segment_row, np.arange(len(rows)))
    last = np.append(first[1:], len(record.segment_row)) - 1
    step = record.step[rows]
    # a step that takes no time ends at the moment at which it takes a row
    at_queue = np.minimum(np.searchsorted(record.step_end, record.queue_time[rows], side="right"), step)
    start = record.segment_version[first][rows]
    return {
        "start": (step - start).astype(float),
        "oldest": (step - np.minimum.reduceat(record.segment_version, first)[rows]).astype(float),
        "newest": (step - record.segment_version[last][rows]).astype(float),
        "before_queue": (at_queue - start).astype(float),
        "in_queue": (step - at_queue).astype(float),
    }


def histogram(record: PipelineRecord) -> dict[int, int]:
    """Return {lag: decisions} over the segments of the rows after the warm-up that are in the loss."""
    row = record.segment_row
    in_loss = rows_after_warm_up(record)[row] & ~stale_segments(record)
    lag = (record.step[row] - record.segment_version)[in_loss]
    return {int(lag): int(n) for lag, n in enumerate(np.bincount(lag, segment_lengths(record)[in_loss])) if n}


def lag_summary(record: PipelineRecord) -> dict[str, Any]:
    """Summarise the lags. Raises `UserError` if a bound leaves nothing in the loss.

    `start_mean`, `oldest_mean` and so on are means over rows; `token_weighted_mean` is over the decisions in the loss
    (`tokens`, by lag), so that long rows weigh more. `under_way` is the lag that Little's law gives for the rows under
    way at each new version; it equals the mean of `start` where weights arrive at once, no row is dropped and the state
    is steady. The bound is `max_lag`, or else the cap.
    """
    lags, pipeline = row_lags(record), record.pipeline
    bound = pipeline.cap if pipeline.max_lag is None else pipeline.max_lag
    start = lags["start"]
    tokens = histogram(record)
    if not tokens:
        raise UserError(f"max_lag={pipeline.max_lag} masks all that is trained on from step {record.warm} on")
    trained_mean, begun_mean = record.tokens[rows_after_warm_up(record)].mean(), record.tokens.mean()
    return {
        **{f"{name}_mean": float(values.mean()) for name, values in lags.items()},
        "token_weighted_mean": sum(lag * n for lag, n in tokens.items()) / sum(tokens.values()),
        "start_p95": float(np.percentile(start, 95)),
        "start_max": int(start.max()),
        "oldest_max": int(lags["oldest"].max()),
        "under_way": float(record.under_way[record.warm :].mean() / record.pipeline.batch),
        "share_at_bound": None if bound is None else float((start == bound).mean()),
        "share_above_bound": None if bound is None else float((start > bound).mean()),
        "rows": {str(int(lag)): int(n) for lag, n in zip(*np.unique(start, return_counts=True), strict=True)},
        "tokens": {str(lag): n for lag, n in tokens.items()},
        "tokens_trained_mean": float(trained_mean),
        "tokens_begun_mean": float(begun_mean),
        "length_bias": float(trained_mean / begun_mean - 1),
    }


def utilisation(record: PipelineRecord) -> dict[str, Any]:
    """Return the shares of time that trainer and slots spend in each state from the step `warm` on, the constraint that
    binds, and the reason."""
    span = record.seconds - record.warm_up_end
    trainer: defaultdict[str, float] = defaultdict(float)
    for begin, end, state in record.trainer:
        trainer[state] += max(0.0, end - max(begin, record.warm_up_end))
    slots = {state: n / (span * record.pipeline.slots) for state, n in sorted(record.slot_seconds.items())}
    shares = {state: n / span for state, n in sorted(trainer.items())}
    binds = binding_constraint(shares, slots)
    return {"trainer": shares, "slots": slots, "binds": binds, "why": EXPLANATIONS[binds]}


def busy_share(slots: Mapping[str, float]) -> float:
    """Return the share of time in which slots generate or rebuild caches."""
    return slots.get("working", 0.0) + slots.get("recompute", 0.0)


def binding_constraint(trainer: dict[str, float], slots: dict[str, float]) -> str:
    """Return the constraint that binds: the trainer if it trains or is down all the time, generation if the slots work
    all the time, the busier one if both do. If neither does, or the trainer does not wait for the slots, it is weight
    sync if the trainer spends more time on that than on waiting, otherwise the state in which slots are idle for
    longest."""
    waiting = trainer.get("waiting", 0.0)
    occupation, working = trainer.get("training", 0.0) + trainer.get("down", 0.0), busy_share(slots)
    if occupation >= BUSY and occupation >= working:
        return "trainer"
    if working >= BUSY and waiting > 0:
        return "generation"
    if trainer.get("syncing", 0.0) > waiting:
        return "sync"
    idle = {state: n for state, n in slots.items() if state not in ("working", "recompute") and n > 0}
    return max(idle, key=lambda state: idle[state], default="generation")


class CapResult(NamedTuple):
    """Lag and speed of a pipeline under one cap."""

    cap: float | None
    lag: float  # in versions, mean over the decisions that were trained on: "token lag"
    step_seconds: float
    binds: str
    explanation: str
    row_lag: float  # in versions, mean over rows, of their first decision: "lag"

    @property
    def name(self) -> str:
        return "none" if self.cap is None else f"{self.cap:g}"

    def to_json(self) -> dict[str, Any]:
        values = self._asdict()
        return {**values, "why": values.pop("explanation")}


def over_caps(pipeline: Pipeline, caps: Sequence[float | None]) -> list[CapResult]:
    """Simulate a pipeline under each cap. Raises `UserError` where one starves the trainer, naming the cap."""
    results = []
    for cap in caps:
        where = "CAP=none" if cap is None else f"CAP={cap:g}"
        try:
            result = summary(simulate(pipeline.with_settings({"cap": cap}, where)))
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        lag = result["lag"]
        values = lag["token_weighted_mean"], result["step_seconds"], result["binds"], result["why"], lag["start_mean"]
        results.append(CapResult(cap, *values))
    return results
