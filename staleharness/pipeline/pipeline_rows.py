"""Rows of a simulated pipeline: their ledger, the `Schedule` that a learner takes, and their trace, with times.

A group is assigned to the free actor with the smallest number. There are thus as many actors as groups were ever under
way at once, and each finishes one group before it begins the next.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from ..rollout_schedule import NEVER, Ints, Schedule
from ..trace import trace_bytes
from .pipeline_event_log import (
    FATES,
    TRAINED,
    PipelineRecord,
    end_steps,
    end_times,
    segment_lengths,
    stale_segments,
    trained_rows,
)

if TYPE_CHECKING:
    import pandas as pd


def row_ledger(record: PipelineRecord, n: int) -> dict[str, dict[str, int]]:
    """Count the first n `rows` that began, and their `decisions`, by fate: generated = the sum of all the others.

    `masked`: taken by the trainer but left out of the loss. Raises `ArithmeticError` if a ledger does not balance,
    which would be an error of the simulation.
    """
    length, inside = segment_lengths(record), record.segment_row < n
    masks = {
        "rows": int((record.fate[:n] == TRAINED).sum() - trained_rows(record)[:n].sum()),
        "decisions": int(length[stale_segments(record) & inside].sum()),
    }
    ledgers = {"rows": {"generated": n}, "decisions": {"generated": int(length[inside].sum())}}
    for unit, weights in (("rows", None), ("decisions", record.done[:n])):
        counts = np.bincount(record.fate[:n], weights, len(FATES)).astype(int).tolist()
        ledgers[unit] |= dict(zip(FATES, counts, strict=True))
        ledgers[unit]["trained"] -= masks[unit]
        ledgers[unit]["masked"] = masks[unit]
        if 2 * ledgers[unit]["generated"] != sum(ledgers[unit].values()):
            raise ArithmeticError(f"the ledger of {unit} does not close: {ledgers[unit]}")
    return ledgers


def ledger(record: PipelineRecord) -> dict[str, dict[str, int]]:
    """Return the ledger of the whole run in `rows` and `tokens`. `lost`: decisions lost in failures, whose rows are
    generated again."""
    ledgers = row_ledger(record, len(record.slot))
    tokens = ledgers["decisions"]
    return {
        "rows": ledgers["rows"],
        "tokens": {**tokens, "generated": tokens["generated"] + record.lost, "lost": record.lost},
    }


def schedule_of(record: PipelineRecord) -> Schedule:
    """Return the schedule of the groups whose rows have all begun, in the order in which they began, without times."""
    size = record.pipeline.group
    groups = len(record.slot) // size
    rows = slice(0, groups * size)
    segments = record.segment_row < groups * size
    row = record.segment_row[segments]
    actor, nth = _assign_actors(record)
    return Schedule(
        group=np.repeat(np.arange(groups), size),
        actor=actor[rows],
        nth=nth[rows],
        phase=np.where(record.fate == TRAINED, record.step, NEVER)[rows],
        place=places(record)[rows],
        first=np.searchsorted(row, np.arange(groups * size + 1)),
        version=record.segment_version[segments],
        end=record.segment_end[segments],
        kept=~stale_segments(record)[segments],
        ledger=row_ledger(record, groups * size),
        finished=end_steps(record)[rows],
        left=record.exit_step[rows],
        reused=_reused(record, groups),
    )


def _reused(record: PipelineRecord, groups: int) -> Ints | None:
    """Return (row, phase) [k, 2] of each row that is trained on again; None if there is none."""
    pairs = np.array([pair for pair in record.reused if pair[0] < groups], np.int64).reshape(-1, 2)
    if not len(pairs):
        return None
    size = record.pipeline.group
    rows = (pairs[:, :1] * size + np.arange(size)).ravel()
    return np.stack([rows, np.repeat(pairs[:, 1], size)], axis=1)


def _assign_actors(record: PipelineRecord) -> tuple[Ints, Ints]:
    """Return (actor, number of groups that it began before) of each row [n]."""
    n, size = len(record.slot), record.pipeline.group
    start, end = np.minimum.reduceat(record.start_time, range(0, n, size)), end_times(record)[::size]
    end = np.where(np.isnan(end), np.inf, end)
    actor, nth = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    busy: list[tuple[float, int]] = []  # heap of (end of the group, actor)
    free: list[int] = []  # heap of actors
    counts: list[int] = []
    for group, (now, until) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= now:
            heappush(free, heappop(busy)[1])
        if not free:
            free.append(len(counts))
            counts.append(0)
        lowest = heappop(free)
        actor[group], nth[group] = lowest, counts[lowest]
        counts[lowest] += 1
        heappush(busy, (until, lowest))
    return np.repeat(actor, size)[:n], np.repeat(nth, size)[:n]


def places(record: PipelineRecord) -> Ints:
    """Return the place [n] of each row's group among those that its step trains on, in the order in which the trainer
    takes them; NEVER for a row that is not trained on."""
    size = record.pipeline.group
    step = np.where(record.fate == TRAINED, record.step, NEVER)[::size]
    numbers = np.arange(len(step))
    in_time = record.pipeline.order in ("completed", "random")  # otherwise in the order in which they began
    groups = np.lexsort((numbers, record.queue_time[::size] if in_time else numbers, step))
    groups = groups[step[groups] != NEVER]
    place = np.full(len(step), NEVER)
    place[groups] = np.arange(len(groups)) - np.searchsorted(step[groups], step[groups])
    return np.repeat(place, size)[: len(record.slot)]


def trace_of(record: PipelineRecord) -> pd.DataFrame:
    """Return a table with one line per row that began, in order."""
    import pandas as pd

    n = len(record.slot)
    first = np.searchsorted(record.segment_row, np.arange(n))
    trained = record.fate == TRAINED
    actor, nth = _assign_actors(record)
    return pd.DataFrame(
        {
            "row": np.arange(n),
            "group": np.arange(n) // record.pipeline.group,
            "actor": actor,
            "nth": nth,
            "fate": np.array(FATES)[record.fate],
            "phase": record.step,
            "place": places(record),
            "versions": np.split(record.segment_version, first[1:]),
            "ends": np.split(record.segment_end, first[1:]),
            "began_at": record.start_time,
            "made_at": record.finish_time,
            "queued_at": record.queue_time,
            "trained_at": np.where(trained, record.step_start[record.step], np.nan),
            "finished_in": end_steps(record),
            "left_in": record.exit_step,
        }
    )


def to_parquet(record: PipelineRecord) -> bytes:
    """Return the trace as the content of a Parquet file."""
    header = {"source": "pipeline", "seed": record.seed, "warm_up": record.warm, "pipeline": record.pipeline.to_json()}
    return trace_bytes(trace_of(record), header)
