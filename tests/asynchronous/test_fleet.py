"""Processes that make groups, the queue before the learner, and what is written down of both."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from places import HELPERS, ROOT
from toy_actors import LENGTH, Toy, version

from staleharness.asynchronous.actor import Load
from staleharness.asynchronous.fleet import Fleet, Order
from staleharness.asynchronous.recorder import Recorder
from staleharness.errors import UserError
from staleharness.lag import read_lag
from staleharness.lags.real_time import Async

PATIENCE = 60.0
Start = Callable[..., Fleet]


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[Fleet] = []

    def start(
        toy: Toy, actors: int = 2, fetch: int = 0, recorder: Recorder | None = None, **order: Any
    ) -> Fleet:
        asked = {"groups": 3, "rows": 2, "room": 4, "most_lag": 100, "length": LENGTH, **order}
        loads = [Load(fetch, 0.0)] * actors
        begun.append(
            Fleet(Order(toy, loads, preload=["toy_actors"], **asked), recorder or Recorder(), version(0))
        )
        return begun[-1]

    yield start
    for fleet in begun:
        fleet.close()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it never came to this"
        time.sleep(0.01)


def taken(fleet: Fleet, phase: int) -> list[tuple[int, int, list[float], int]]:
    return [pickle.loads(content) for content in fleet.take(phase)[0]]


def fates(fleet: Fleet) -> list[str]:
    return [entry.fate for entry in fleet.recorder.entries]


def test_actors_act_with_the_newest_version_and_the_learner_takes_what_is_finished_first(
    start: Start,
) -> None:
    fleet = start(Toy())
    pids = set(fleet.pids.values())
    assert len(pids) == 2 and os.getpid() not in pids
    groups = []
    for phase in range(4):
        if phase:
            fleet.board.publish(version(phase))
        batch = taken(fleet, phase)
        assert len(batch) == 3 and {pid for *_, pid in batch} <= pids
        assert all(len(set(acted)) == 1 and acted[0] <= phase for _, _, acted, _ in batch)
        for place, (group, nth, acted, _) in enumerate(batch):
            entry = fleet.recorder.entries[group]
            assert (entry.fate, entry.phase, entry.place, entry.nth) == ("trained", phase, place, nth)
            assert entry.versions == [int(acted[0])] and entry.starts == [0]
        groups += [group for group, *_ in batch]
    queued = [fleet.recorder.entries[group].queued_at for group in groups]
    assert queued == sorted(queued), "first in, first out"


def test_the_slowest_actors_are_some_or_the_end_of_a_row_of_them() -> None:
    even, some = (read_lag(f"async[actors=5,delay=2.0,spread=3.0,slow={slow}]") for slow in (0, 2))
    assert isinstance(even, Async) and even.delays() == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert isinstance(some, Async) and some.delays() == [2.0, 2.0, 2.0, 6.0, 6.0]
    with pytest.raises(UserError, match="slow must be 0, or fewer than there are actors, not 5"):
        read_lag("async[actors=5,slow=5]")


def test_a_full_queue_holds_the_actors_up(start: Start) -> None:
    """Four groups of room and two actors that wait with one each: nobody begins a seventh."""
    fleet = start(Toy())
    until(lambda: fates(fleet).count("queued") == 6)
    time.sleep(0.2)
    assert fates(fleet) == ["queued"] * 6 and len(fleet.queue) == 4 and len(fleet.blocked) == 2
    assert [e.queued_at is None for e in fleet.recorder.entries].count(True) == 2
    fleet.take(0)
    until(lambda: fates(fleet).count("queued") == 6)
    assert fates(fleet).count("trained") == 3 and len(fleet.recorder.entries) == 9


def test_what_is_too_old_is_dropped_when_it_could_be_trained_on(start: Start) -> None:
    fleet = start(Toy(), most_lag=2)
    until(lambda: fates(fleet).count("queued") == 6)
    fleet.board.publish(version(3))
    batch = taken(fleet, 3)
    assert [acted for _, _, acted, _ in batch] == [[3.0] * LENGTH] * 3
    assert fates(fleet).count("dropped_stale") == 6


def test_weights_fetched_inside_a_row_are_written_down_where_they_began_to_act(start: Start) -> None:
    fleet = start(Toy(seconds=0.05), actors=1, fetch=2, groups=1)
    phase, changed = 0, 0
    while changed < 2:
        phase += 1
        fleet.board.publish(version(phase))
        ((group, _, acted, _),) = taken(fleet, phase)
        entry = fleet.recorder.entries[group]
        ends = [*entry.starts[1:], LENGTH]
        expected = np.repeat(entry.versions, np.diff(ends, prepend=0)).tolist()
        assert acted == expected and all(start % 2 == 0 for start in entry.starts)
        changed += len(entry.versions) > 1
        assert phase < 200, "weights never changed inside a row"


def test_an_actor_that_is_killed_is_replaced_and_the_ledger_says_what_it_took_along(start: Start) -> None:
    fleet = start(Toy(seconds=0.02))
    until(lambda: len(fleet.recorder.entries) > 3)
    number, pid = next(iter(fleet.pids.items()))
    os.kill(pid, signal.SIGKILL)
    until(lambda: number not in fleet.pids and len(fleet.pids) == 2)
    assert max(fleet.pids) == 2, "a number of its own"
    for phase in range(3):
        if phase:
            fleet.board.publish(version(phase))
        fleet.take(phase)
    until(lambda: any(e.actor == 2 and e.fate in ("queued", "trained") for e in fleet.recorder.entries))
    fleet.close()
    rows = fleet.recorder.rows()
    mine = rows[rows["actor"] == number]
    assert (mine["fate"] == "lost").sum() in (0, 2), "two rows a group; none where it was waiting for room"
    for _, own in rows.groupby("actor"):
        assert sorted(own["nth"].unique()) == list(range(own["nth"].nunique()))
    assert set(rows["fate"]) <= {"trained", "queued", "lost", "in_flight"}
    assert (rows.loc[rows["fate"] == "trained"].groupby("phase").size() == 6).all()
    assert [ends[-1] for ends in rows.loc[rows["fate"] == "trained", "ends"]] == [LENGTH, LENGTH - 2] * 9


def test_what_goes_wrong_in_an_actor_ends_the_run(start: Start) -> None:
    fleet = start(Toy(end="raise"), actors=1)
    with pytest.raises(RuntimeError, match="actor 0 failed: ValueError: the floor is wet"):
        for phase in range(3):
            fleet.take(phase)


@pytest.mark.parametrize("end", ["never opens", "exit"])
def test_actors_that_die_as_fast_as_they_begin_end_the_run_and_others_do_not(start: Start, end: str) -> None:
    fleet = start(Toy(end=end), actors=1)
    if end == "exit":  # in their third group each: it goes on
        for phase in range(3):
            fleet.take(phase)
        assert {entry.actor for entry in fleet.recorder.entries} >= {0, 1, 2, 3}
        assert fates(fleet).count("lost") >= 3
        return
    with pytest.raises(RuntimeError, match="4 actors died and handed nothing over, the last by exit code 3"):
        fleet.take(0)


def test_a_record_that_is_taken_up_again_has_lost_what_was_under_way(start: Start) -> None:
    fleet = start(Toy())
    fleet.take(0)
    until(lambda: fates(fleet).count("queued") == 6)
    state = fleet.state_dict()
    resumed = Recorder()
    resumed.load_state_dict(state)
    assert sorted(e.fate for e in resumed.entries) == ["lost"] * 6 + ["trained"] * 3
    again = start(Toy(), recorder=resumed)
    assert set(again.pids) == {2, 3}, "new actors, whose numbers nobody had"
    assert taken(again, 1)[0][0] >= 9
    assert resumed.now() >= state["elapsed"] > 0


ORPHANS = """
import time
from toy_actors import Toy, version
from staleharness.asynchronous.actor import Load
from staleharness.asynchronous.fleet import Fleet, Order
from staleharness.asynchronous.recorder import Recorder
fleet = Fleet(Order(Toy(), [Load(0, 0.0)] * 2, groups=1, rows=2, room=1, most_lag=9, length=5), Recorder(), version(0))
fleet.take(0)
print(*fleet.pids.values(), flush=True)
time.sleep(600)
"""


def test_actors_end_when_the_learner_is_killed() -> None:
    path = os.pathsep.join((str(HELPERS), str(ROOT)))
    learner = subprocess.Popen(
        [sys.executable, "-c", ORPHANS],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert learner.stdout is not None
    with learner:
        pids = [int(pid) for pid in learner.stdout.readline().split()]
        assert len(pids) == 2 and all(map(alive, pids))
        learner.kill()
    until(lambda: not any(map(alive, pids)))


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not waited for does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
