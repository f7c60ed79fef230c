"""A schedule of a user's own: what a run relies on is checked before it begins, and a mistake is one line."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from schedules import GivenSchedule, Group, lock_step, schedule
from schedules import given_schedule as given_schedule

from staleharness.errors import UserError
from staleharness.lag import LagModel
from staleharness.rollout_schedule import Demand, Schedule
from staleharness.rollout_schedule_checks import make_schedule, validate_schedule
from staleharness.testing import LAG_CHECKS
from staleharness.testing.check_runner import global_generators

SMALL = Demand(phases=2, groups=2, rows=1, length=7, seed=0)
PHASE, SLOT, EVEN = np.repeat([0, 1], 2), np.tile([0, 1], 2), np.arange(5)
TWICE = {"first": np.arange(0, 10, 2), "version": np.repeat(PHASE, 2), "kept": np.ones(8, bool)}  # segments a row
LEDGER = {"rows": {"generated": 4, "trained": 4}, "decisions": {"generated": 28, "trained": 28}}
AGAIN = {"finished": PHASE, "left": PHASE}
MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"typo": 1}, "cannot plan the run: TypeError"),
    ({"kept": np.ones(3, bool)}, r"kept of the schedule is bool \[3\]; give an array of 4 booleans"),
    ({"kept": np.ones(4, int)}, r"kept of the schedule is int64 \[4\]"),
    ({"version": np.zeros(4)}, r"version of the schedule is float64 \[4\]; give an array of 4 whole numbers"),
    ({"actor": [0, 1, 0, 1]}, "actor of the schedule is no array"),
    ({"first": np.arange(4)}, r"first of the schedule is int64 \[4\]; give an array of 5"),
    ({"finished": np.zeros(3, int)}, r"finished of the schedule is int64 \[3\]; give an array of 4 whole numbers"),
    ({"finished": PHASE / 1.0}, r"finished of the schedule is float64 \[4\]"),
    ({"left": PHASE[:3]}, r"left of the schedule is int64 \[3\]"),
    ({"left": [0, 0, 1, 1]}, "left of the schedule is no array"),
    ({"reused": np.array([0, 1])}, r"reused of the schedule is int64 \[2\]; give an array of 1 x 2 whole numbers"),
    ({"apart": -3}, "apart=-3 of the schedule; give a whole number, 0 or more"),
    ({"apart": 2.5}, "apart=2.5 of the schedule"),
    ({"ledger": None}, "ledger of the schedule is None; give counts of rows and of decisions"),
    ({"ledger": {}}, "ledger of the schedule is {}; give counts"),
    ({"ledger": LEDGER | {"rows": {"trained": 4}}}, "counts rows as {'trained': 4}; give whole numbers, .* generated"),
    ({"ledger": LEDGER | {"rows": {"generated": "4"}}}, "counts rows as {'generated': '4'}; give whole numbers"),
    ({"ledger": LEDGER | {"rows": {"generated": 0, "lost": -1}}}, "counts rows as .*; give whole numbers, 0 or more"),
    ({"ledger": LEDGER | {"rows": {"generated": 5, "trained": 4}}}, "counts 5 rows as generated; its other .* to 4"),
    (dict.fromkeys(("group", "actor", "nth", "phase", "place"), EVEN[:0]) | {"first": EVEN[:1]}, "has no rows"),
    ({"first": np.array([-1, 1, 2, 3, 4])}, "first goes from -1 to 4; give 0 to 4, the segments"),
    ({"first": np.array([0, 1, 2, 3, 3])}, "first goes from 0 to 3; give 0 to 4"),
    ({"first": np.array([0, 1, 2, 3, 9])}, "first goes from 0 to 9; give 0 to 4"),
    ({"first": np.array([0, 3, 2, 3, 4])}, "row 1 has no segment: first goes from 3 to 2"),
    ({"first": np.array([0, 1, 1, 3, 4])}, "row 1 has no segment: first goes from 1 to 1"),
    (TWICE | {"version": np.array([0, 0, 0, 0, 1, 0, 1, 1]), "end": np.tile([3, 7], 4)}, "row 2 goes .* older version"),
    (TWICE | {"end": np.tile([5, 3], 4)}, "row 0 has an empty segment: one ends at 5, and the next at 3"),
    (TWICE | {"end": np.tile([7, 7], 4)}, "row 0 has an empty segment: one ends at 7, and the next at 7"),
    ({"version": np.array([0, 0, -1, 1])}, "row 2 has version=-1; give 0 or more"),
    ({"end": np.array([7, 7, 0, 7])}, "row 2 has end=0; give 1 to 7"),
    ({"end": np.array([7, 7, -3, 7])}, "row 2 has end=-3; give 0 or more"),
    ({"end": np.full(4, 14)}, "row 0 has end=14; give 0 to 7"),
    ({"group": np.array([-1, 0, 1, 2])}, "row 0 has group=-1; give 0 or more"),
    ({"group": np.array([0, 1, 0, 3])}, "row 2 has group=0, after 1; groups must not decrease"),
    ({"group": PHASE}, "row 1 has place=1, and the row before it, of the same group, place=0"),
    ({"group": np.array([0, 1, 1, 3])}, "row 2 has phase=1, and the row before it, of the same group, phase=0"),
    ({"actor": np.array([0, 1, 0, -1])}, "row 3 has actor=-1; give 0 or more"),
    ({"nth": np.array([0, 0, -1, 1])}, "row 2 has nth=-1; give 0 or more"),
    ({"nth": np.array([0, 0, 1, 2])}, "actor 1 lacks its group 1"),
    ({"actor": PHASE * 0}, "actor 0 has several groups with nth = 0"),
    ({"actor": PHASE * 0, "nth": PHASE * 0}, "actor 0 has several groups with nth = 0"),
    ({"phase": np.array([0, 0, 1, -7])}, "row 3 has phase=-7; give -1 to 1"),
    ({"phase": np.array([0, 0, 1, 2])}, "row 3 has phase=2; give -1 to 1"),
    ({"phase": np.array([0, 0, 1, -1])}, "phase 1 has 1 rows in 1 groups; the run asks for 2 groups of 1"),
    ({"place": np.array([0, 1, 0, 2])}, "row 3 has place=2; give 0 to 1"),
    ({"place": np.array([0, 1, 0, 0])}, "phase 1 has another number of rows than 1 at a place"),
    ({"version": np.array([0, 0, 1, 2])}, "row 3 is trained in phase 1 with a version from the future"),
    ({"finished": PHASE + 1}, "row 0 is trained in phase 0, before it is finished"),
    ({"left": PHASE + 1}, "row 0 is trained in phase 0, and leaves the queue in another"),
    ({"reused": np.array([[0, 1]])}, "reused needs finished and left"),
    (AGAIN | {"reused": np.array([[-1, 1]])}, "reused has the row -1; give 0 to 3"),
    (AGAIN | {"reused": np.array([[4, 1]])}, "reused has the row 4; give 0 to 3"),
    (AGAIN | {"reused": np.array([[0, 2]])}, "reused has the phase 2; give at most 1"),
    (AGAIN | {"reused": np.array([[2, 1]])}, "row 2 is trained on again in phase 1, before the first time"),
    (AGAIN | {"reused": np.array([[0, 1]])}, "phase 1 has 3 rows in 3 groups"),
]


def plan_of(demand: Demand = SMALL, **changes: Any) -> Schedule:
    columns = {"group": EVEN[:4], "actor": SLOT, "nth": PHASE, "phase": PHASE, "place": SLOT, "first": EVEN}
    segments = {"version": PHASE, "end": np.full(4, 7), "kept": np.ones(4, bool), "ledger": LEDGER}
    return make_schedule(lambda _: Schedule(**{**columns, **segments, **changes}), demand, "LAG=plan")


@pytest.mark.parametrize(("changes", "words"), MALFORMED)
def test_a_malformed_schedule_is_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=f"^LAG=plan:? .*{words}"):
        plan_of(**changes)


def test_an_answer_that_is_no_schedule_is_one_line() -> None:
    with pytest.raises(UserError, match="LAG=plan: schedule returns a NoneType, not a Schedule"):
        make_schedule(lambda demand: None, SMALL, "LAG=plan")


def test_a_sound_schedule_is_kept_with_plain_numbers() -> None:
    assert plan_of().version is PHASE
    counts = {unit: {name: np.int64(n) for name, n in entries.items()} for unit, entries in LEDGER.items()}
    plan = plan_of(version=PHASE.astype(np.uint8), ledger=counts)
    assert plan.version.dtype == np.int64 and json.dumps(plan.ledger) == json.dumps(LEDGER)


def test_groups_that_share_a_place_are_refused() -> None:
    demand = Demand(phases=1, groups=2, rows=2, length=7, seed=0)
    rows = schedule([Group(0, 0, [(0, 7, True)]), Group(1, 0, [(0, 7, True)])], 2)
    validate_schedule(rows, demand, "x")
    split = replace(rows, group=np.arange(4), nth=np.array([0, 1, 0, 1]))
    with pytest.raises(UserError, match="phase 0 has rows of several groups at one place"):
        validate_schedule(split, demand, "x")


def test_an_actor_generates_its_groups_in_the_order_of_nth() -> None:
    """Also where group numbers say otherwise: rows that a failure stopped may begin again after later ones."""
    plan = plan_of(actor=PHASE * 0, nth=np.array([1, 0, 2, 3]))
    assert [rows.tolist() for phase in range(2) for rows in plan.rows(phase).generated] == [[1], [0], [2], [3]]


def versions_drawn(seed: int) -> list[int]:
    """Versions of a schedule that draws from the global generators."""

    def draw(demand: Demand) -> Schedule:
        lags = np.random.randint(2, size=10) * random.choice([0, 1, 1])  # noqa: NPY002
        plan = lock_step(demand, 0)
        return replace(plan, version=np.maximum(0, plan.version - lags))

    plan = make_schedule(draw, Demand(phases=5, groups=2, rows=1, length=7, seed=seed), "x")
    return plan.version.tolist()


def test_a_schedule_gets_the_same_numbers_at_any_time() -> None:
    first = [versions_drawn(seed) for seed in range(5)]
    random.seed(5), np.random.seed(5)  # noqa: NPY002
    states = global_generators()
    assert [versions_drawn(seed) for seed in range(5)] == first and len({*map(str, first)}) > 1
    assert global_generators() == states


def fails(demand: Demand) -> Schedule:
    raise KeyError("my own")


def draws_globally(demand: Demand) -> Schedule:
    np.random.rand()  # noqa: NPY002
    return lock_step(demand, 1)


def repeats_numbers(demand: Demand) -> Schedule:
    plan = lock_step(demand, 1)
    return replace(plan, actor=plan.actor * 0)


def counts_backwards(demand: Demand) -> Schedule:
    plan = lock_step(demand, 0)
    return replace(plan, actor=plan.actor * 0, nth=(plan.phase + 1) * demand.groups - 1 - plan.place)


def cuts_rows(demand: Demand) -> Schedule:
    return lock_step(replace(demand, length=max(1, demand.length // 2)), 1)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda demand: lock_step(demand, 2), ""),
        (fails, "cannot plan the run: KeyError: 'my own'"),
        (draws_globally, "a global random generator moved"),
        (repeats_numbers, "actor 0 has several groups with nth = 0"),
        (counts_backwards, "each actor's groups are counted in the order in which they begin"),
        (cuts_rows, "a row that is trained on is whole: its last segment ends at 7"),
        (lambda demand: replace(lock_step(demand, 1), apart=-3), "apart=-3 of the schedule"),
    ],
)
def test_the_contract_names_the_fault_of_a_schedule(
    answer: Callable[[Demand], Schedule], words: str, given_schedule: Callable[[Any], None]
) -> None:
    given_schedule(answer)
    model: LagModel = GivenSchedule()
    messages = []
    for check in LAG_CHECKS[2:]:  # the first two are about its registration
        try:
            check(model)
        except AssertionError as error:
            messages.append(str(error))
    assert bool(messages) == bool(words) and all(words in message for message in messages)
