"""Who works and who waits, on both sides, and which constraint binds."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from .log import Record

BUSY = 0.95  # share of its time from which on a side counts as saturated
WHY = {
    "trainer": "the trainer works all the time: more slots or a higher cap change nothing",
    "generation": "the slots work all the time: the trainer waits for rows",
    "admission": "slots stand idle because the cap lets no row begin",
    "queue": "finished groups find no room in the queue",
    "sync": "both sides stand still while weights are on their way",
    "unit": "slots wait for the slowest row of their unit",
    "down": "workers are down",
}


def use(record: Record) -> dict[str, Any]:
    """Shares of time from the step `warm` on, of the trainer and of the slots, by state; and what binds."""
    span = record.seconds - record.since
    trainer: defaultdict[str, float] = defaultdict(float)
    for begin, end, state in record.trainer:
        trainer[state] += max(0.0, end - max(begin, record.since))
    whole = span * record.pipeline.slots
    slots = {state: n / whole if whole else 0.0 for state, n in sorted(record.slot_seconds.items())}
    shares = {state: n / span if span else 0.0 for state, n in sorted(trainer.items())}
    return {"trainer": shares, "slots": slots, "binds": binds(shares, slots)}


def binds(trainer: dict[str, float], slots: dict[str, float]) -> str:
    """Which constraint binds: the side that works all the time, the busier one where both do; where neither does,
    what makes slots stand idle for longest, or weight sync where that takes most of what the trainer does not train."""
    training, working = trainer.get("training", 0.0), slots.get("working", 0.0)
    if max(training, working) >= BUSY:
        return "trainer" if training >= working else "generation"
    if trainer.get("syncing", 0.0) > trainer.get("waiting", 0.0):
        return "sync"
    idle = {state: n for state, n in slots.items() if state not in ("working", "recompute") and n > 0}
    return max(idle, key=lambda state: idle[state], default="generation")
