"""What a learner takes of a simulated pipeline, as a `Schedule`: the same rows, without the seconds.

Actors are numbered as they are needed: a group is made by the free actor with the smallest number, so that there are as
many as groups were ever under way at once, and each finishes one before it begins the next.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from ..schedule import NEVER, Ints, Schedule
from .lag import TRAINED, masked, stretch_lengths, trained_rows
from .log import FATES, Floats, Record


def schedule_of(record: Record) -> Schedule:
    """The groups of which all rows have begun, in the order in which they began."""
    size = record.pipeline.group
    groups = len(record.slot) // size
    rows = slice(0, groups * size)
    stretches = record.stretch_row < groups * size
    row = record.stretch_row[stretches]
    began = record.began[rows].reshape(groups, size).min(1)
    made = ended(record)[: groups * size : size]  # NaN: not yet
    actor, nth = _actors(began, np.where(np.isnan(made), np.inf, made))
    phase = np.where(record.fate == TRAINED, record.step, NEVER)[rows]
    return Schedule(
        group=np.repeat(np.arange(groups), size),
        actor=np.repeat(actor, size),
        nth=np.repeat(nth, size),
        phase=phase,
        place=np.repeat(_places(phase[::size], _order(record)[rows][::size]), size),
        first=np.searchsorted(row, np.arange(groups * size + 1)),
        version=record.stretch_version[stretches],
        end=record.stretch_end[stretches],
        kept=~masked(record)[stretches],
        ledger=_ledger(record, rows, stretches),
        finished=np.repeat(finished_in(made, record.step_began), size),
        left=record.left[rows],
    )


def ended(record: Record) -> Floats:
    """[n], when each row's group was made or given up; NaN: not yet."""
    n, size = len(record.slot), record.pipeline.group
    made = np.array([record.made[i : i + size].max() for i in range(0, n, size)]).repeat(size)[:n]
    return np.where(np.isnan(record.stopped), made, record.stopped)


def finished_in(made: Floats, taken: Floats) -> Ints:
    """The number of the first batch that was taken when something was made, or later; NEVER: none, or it never was."""
    found = np.searchsorted(taken, made)  # NaN comes last
    return np.where(found < len(taken), found, NEVER)


def _actors(began: Floats, made: Floats) -> tuple[Ints, Ints]:
    """(actor, how many groups it had begun before) [groups], of groups in the order in which they began."""
    actor, nth = np.empty(len(began), np.int64), np.empty(len(began), np.int64)
    busy: list[tuple[float, int]] = []  # heaps: until when, who; and who is free
    free: list[int] = []
    counts: list[int] = []
    for group, (now, until) in enumerate(zip(began.tolist(), made.tolist(), strict=True)):
        while busy and busy[0][0] <= now:
            heappush(free, heappop(busy)[1])
        if not free:
            free.append(len(counts))
            counts.append(0)
        who = heappop(free)
        actor[group], nth[group] = who, counts[who]
        counts[who] += 1
        heappush(busy, (until, who))
    return actor, nth


def _order(record: Record) -> Floats:
    """[n], by which the trainer takes rows: when they were ready, or else which began first."""
    if record.pipeline.order == "completed":
        return record.queued
    return np.arange(len(record.slot)).astype(float)


def _places(phase: Ints, order: Floats) -> Ints:
    """[groups], the place of each among those of its phase; NEVER for those of none."""
    place = np.full(len(phase), NEVER)
    taken = np.lexsort((np.arange(len(phase)), order, phase))
    taken = taken[phase[taken] != NEVER]
    first = np.searchsorted(phase[taken], phase[taken])
    place[taken] = np.arange(len(taken)) - first
    return place


def _ledger(record: Record, rows: slice, stretches: np.ndarray) -> dict[str, dict[str, int]]:
    """In rows and in decisions: generated = the sum of all the others."""
    length, hidden = stretch_lengths(record), masked(record) & stretches
    accounts = {}
    for name, weights in (("rows", None), ("decisions", record.done[rows])):
        counts = np.bincount(record.fate[rows], weights, len(FATES)).astype(int).tolist()
        accounts[name] = {"generated": sum(counts), **dict(zip(FATES, counts, strict=True))}
    accounts["rows"]["masked"] = accounts["rows"]["trained"] - int(trained_rows(record)[rows].sum())
    accounts["decisions"]["masked"] = int(length[hidden].sum())
    for account in accounts.values():
        account["trained"] -= account["masked"]
    return accounts
