"""Checks of a lag model's `schedule`: all that a run relies on, so that a mistake is one line before the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .base.streams import global_generators_restored, seed_global_generators
from .errors import UserError, shorten, type_and_message
from .rollout_schedule import LOST, NEVER, Demand, Ints, Schedule

Rule = tuple[Any, ...]
"""Where a rule is broken, the words, and columns whose first broken place they show. One without columns: a bool."""

UNITS = {"rows", "decisions"}  # of a ledger


def make_schedule(plan: Callable[[Demand], object], demand: Demand, title: str) -> Schedule:
    """Call a lag model's `schedule` and check the answer. Raises `UserError`, also for an error in it.

    The global generators are seeded for the call, and restored: it can come from any process, at any time.
    """
    try:
        with global_generators_restored():
            seed_global_generators(demand.seed, "schedule")
            schedule = plan(demand)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UserError(f"{title} cannot plan the run: {type_and_message(error)}") from error
    if not isinstance(schedule, Schedule):
        raise UserError(f"{title}: schedule returns a {type(schedule).__name__}, not a Schedule")
    return validate_schedule(schedule, demand, title)


def validate_schedule(schedule: Schedule, demand: Demand, title: str) -> Schedule:
    """Return a schedule with its numbers as int64. Raises `UserError` where its arrays are of wrong length or type, or
    it contradicts itself or the demand."""
    schedule = _with_plain_numbers(schedule, title)
    for broken, words, *columns in _rules(schedule, demand):
        if np.any(broken):
            raise UserError(f"{title}: {words.format(*(column[np.argmax(broken)] for column in columns))}")
    return schedule


def _with_plain_numbers(schedule: Schedule, title: str) -> Schedule:
    """Return the schedule with whole numbers as int64 and int. Raises `UserError` for arrays of wrong length or type,
    and for a ledger that does not balance."""
    n, m, k = (getattr(array, "size", 0) for array in (schedule.group, schedule.version, schedule.reused))
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("group", "actor", "nth", "phase", "place"), (n,))
    shapes |= {"first": (n + 1,)} | dict.fromkeys(("version", "end", "kept"), (m,))
    optional = {"finished": (n,), "left": (n,), "reused": (k // 2, 2)}
    shapes |= {name: shape for name, shape in optional.items() if getattr(schedule, name) is not None}
    for name, shape in shapes.items():
        array, words = getattr(schedule, name), "booleans" if name == "kept" else "whole numbers"
        is_array = isinstance(array, np.ndarray)
        if not is_array or array.dtype.kind not in ("b" if name == "kept" else "iu") or array.shape != shape:
            kind = f"{array.dtype} {list(array.shape)}" if is_array else "no array"
            size = " x ".join(map(str, shape)) + " " if is_array else ""
            raise UserError(f"{title}: {name} of the schedule is {kind}; give an array of {size}{words}")
    if not _is_count(schedule.apart):
        raise UserError(f"{title}: apart={schedule.apart!r} of the schedule; give a whole number, 0 or more")
    numbers = {name: getattr(schedule, name).astype(np.int64, copy=False) for name in shapes if name != "kept"}
    return replace(schedule, **numbers, apart=int(schedule.apart), ledger=_plain_ledger(schedule.ledger, title))


def _plain_ledger(ledger: object, title: str) -> dict[str, dict[str, int]]:
    """Return a ledger with counts as plain numbers. Raises `UserError` for one that does not balance."""
    where = f"{title}: ledger of the schedule"
    if not isinstance(ledger, Mapping) or {*ledger} != UNITS:
        raise UserError(f"{where} is {shorten(repr(ledger))}; give counts of rows and of decisions")
    for unit, counts in ledger.items():
        if not isinstance(counts, Mapping) or "generated" not in counts or not all(map(_is_count, counts.values())):
            raise UserError(
                f"{where} counts {unit} as {shorten(repr(counts))}; give whole numbers, 0 or more, one as generated"
            )
        generated = counts["generated"]
        if (rest := sum(counts.values()) - generated) != generated:
            raise UserError(f"{where} counts {generated} {unit} as generated; its other counts add up to {rest}")
    return {unit: {name: int(count) for name, count in counts.items()} for unit, counts in ledger.items()}


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def _rules(plan: Schedule, demand: Demand) -> Iterator[Rule]:
    """Yield the rules of a schedule, each of which relies on those before it."""
    rows, n, m, first = np.arange(len(plan)), len(plan), len(plan.version), plan.first
    yield n == 0, "the schedule has no rows"
    yield first[0] != 0 or first[-1] != m, f"first goes from {first[0]} to {first[-1]}; give 0 to {m}, the segments"
    yield np.diff(first) < 1, "row {} has no segment: first goes from {} to {}", rows, first, first[1:]
    yield from _rules_of_segments(plan)
    yield from _out_of_range(plan, demand)
    yield from _rules_of_groups(plan)
    if plan.reused is not None:
        yield from _rules_of_reuse(plan, plan.reused, demand)
    yield from _rules_of_batches(plan, demand)
    yield _rule_of_actors(plan)
    yield from _rules_of_times(plan)


def _rules_of_times(plan: Schedule) -> Iterator[Rule]:
    """Yield the rules of the phases in which rows are generated, finished, trained on, and leave the queue."""
    rows, trained = np.arange(len(plan)), plan.phase != NEVER
    finished, left = (plan.phase if x is None else x for x in (plan.finished, plan.left))
    for broken, words in (
        (np.maximum(plan.newest, plan.generation_phase) > plan.phase, " with a version from the future"),
        ((finished > plan.phase) | (finished == NEVER), ", before it is finished"),
        (left != plan.phase, ", and leaves the queue in another"),
    ):
        yield trained & broken, f"row {{}} is trained in phase {{}}{words}", rows, plan.phase
    out = np.where(left <= LOST, LOST - left, left)
    yield (out > NEVER) & (out < finished), "row {} leaves the queue in phase {}, before it is finished", rows, out


def _rules_of_segments(plan: Schedule) -> Iterator[Rule]:
    """Yield the rules of the segments [m] within a row."""
    row = np.repeat(np.arange(len(plan)), np.diff(plan.first))
    continues = np.diff(row, prepend=-1) == 0
    version, end = np.roll(plan.version, 1), np.roll(plan.end, 1)  # of the segment before
    back, empty = continues & (plan.version < version), continues & (plan.end <= end)
    yield back, "row {} goes back to an older version, from {} to {}", row, version, plan.version
    yield empty, "row {} has an empty segment: one ends at {}, and the next at {}", row, end, plan.end


def _out_of_range(plan: Schedule, demand: Demand) -> Iterator[Rule]:
    """Yield the ranges of all numbers."""
    rows, is_trained = np.arange(len(plan)), plan.phase != NEVER
    for name, column, low, high in (
        ("group", plan.group, 0, None),
        ("actor", plan.actor, 0, None),
        ("nth", plan.nth, 0, None),
        ("phase", plan.phase, NEVER, demand.phases - 1),
        ("place", np.where(is_trained, plan.place, 0), 0, demand.groups - 1),
        ("version", plan.oldest, 0, None),
        ("end", plan.end[plan.first[:-1]], 0, None),
        ("end", plan.lengths, 0, demand.length),
        ("end", np.where(is_trained, plan.lengths, 1), 1, demand.length),
    ):
        above = False if high is None else column > high
        limits = f"{low} or more" if high is None else f"{low} to {high}"
        yield (column < low) | above, f"row {{}} has {name}={{}}; give {limits}", rows, column


def _rules_of_groups(plan: Schedule) -> Iterator[Rule]:
    """Yield the rules of the rows of a group: they are adjacent, and trained on together."""
    rows, step = np.arange(1, len(plan)), np.diff(plan.group)
    yield step < 0, "row {} has group={}, after {}; groups must not decrease", rows, plan.group[1:], plan.group
    for name, column in (("phase", plan.phase), ("place", plan.place)):
        words = f"row {{}} has {name}={{}}, and the row before it, of the same group, {name}={{}}"
        yield (step == 0) & (np.diff(column) != 0), words, rows, column[1:], column


def _rules_of_reuse(plan: Schedule, reused: Ints, demand: Demand) -> Iterator[Rule]:
    """Yield the rules of the rows that are trained on again."""
    row, phase = reused.T
    yield plan.finished is None or plan.left is None, "reused needs finished and left, by which rows are counted"
    yield (row < 0) | (row >= len(plan)), f"reused has the row {{}}; give 0 to {len(plan) - 1}", row
    yield phase >= demand.phases, f"reused has the phase {{}}; give at most {demand.phases - 1}", phase
    early = (phase <= plan.phase[row]) | (plan.phase[row] == NEVER)
    yield early, "row {} is trained on again in phase {}, before the first time", row, phase


def _rules_of_batches(plan: Schedule, demand: Demand) -> Iterator[Rule]:
    """Yield the rules of the rows that each phase trains on."""
    phases, batches = np.arange(demand.phases), [plan.trained_in(phase) for phase in range(demand.phases)]
    sizes, groups = np.array([len(rows) for rows in batches]), [len(np.unique(plan.group[rows])) for rows in batches]
    request = f"the run asks for {demand.groups} groups of {demand.rows}, for {demand.phases} phases"
    wrong = sizes != demand.groups * demand.rows
    yield wrong, f"phase {{}} has {{}} rows in {{}} groups; {request}", phases, sizes, groups
    batch = np.stack(batches).reshape(demand.phases, demand.groups, demand.rows)
    place, group = plan.place[batch], plan.group[batch]
    wrong_place = (place != np.arange(demand.groups)[:, None]).any((1, 2))
    yield wrong_place, f"phase {{}} has another number of rows than {demand.rows} at a place; {request}", phases
    yield (group != group[:, :, :1]).any((1, 2)), "phase {} has rows of several groups at one place", phases


def _rule_of_actors(plan: Schedule) -> Rule:
    """Return the rule that the groups of each actor are counted from 0."""
    order = np.lexsort((plan.group, plan.nth, plan.actor))
    actor, nth, group = plan.actor[order], plan.nth[order], plan.group[order]
    new_actor = np.diff(actor, prepend=-1) != 0
    new_group = new_actor | (np.diff(nth, prepend=0) != 0) | (np.diff(group, prepend=0) != 0)
    count = np.cumsum(new_group) - 1
    count -= np.maximum.accumulate(np.where(new_actor, count, 0))
    fault = np.where(nth > count, "lacks its group", "has several groups with nth =")
    return nth != count, "actor {} {} {}", actor, fault, np.minimum(nth, count)
