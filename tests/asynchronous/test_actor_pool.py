"""Actor processes, their queue, and the record of both."""

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

import pytest
from places import HELPERS, ROOT
from races import pids, until
from toy_actors import ERRORS, LENGTH, Toy, version

from staleharness.asynchronous import actor_pool
from staleharness.asynchronous.actor_pool import MAX_DEATHS, ActorPool, PoolConfig
from staleharness.asynchronous.actor_process import ActorTiming, FinishedGroup
from staleharness.asynchronous.group_lifecycle import Recorder
from staleharness.errors import ActorsNotStarted, UserError
from staleharness.lag import read_lag
from staleharness.lags.real_time import Async
from staleharness.running.worker import describe
from staleharness.training.sample_ledger import Count, Ledger

Start = Callable[..., ActorPool]


@pytest.fixture
def start() -> Iterator[Start]:
    pools: list[ActorPool] = []

    def start(
        toy: Toy, actors: int = 2, fetch: int = 0, recorder: Recorder | None = None, **settings: Any
    ) -> ActorPool:
        settings = {"groups": 3, "rows": 2, "room": 4, "max_lag": 100, "length": LENGTH, **settings}
        timings = [ActorTiming(fetch, 0.0)] * actors
        config = PoolConfig(toy, timings, preload=["toy_actors"], **settings)
        pools.append(ActorPool(config, recorder or Recorder(), version(0)))
        return pools[-1]

    yield start
    for pool in pools:
        pool.close()


def take_batch(pool: ActorPool, phase: int) -> list[tuple[int, int, list[float], int]]:
    return [pickle.loads(content) for content in pool.take(phase)[0]]


def fates(pool: ActorPool) -> list[str]:
    return [entry.fate for entry in pool.recorder.entries]


@pytest.mark.long
def test_actors_use_the_newest_version_and_batches_are_in_order(start: Start) -> None:
    pool = start(Toy())
    started = set(pids(pool).values())
    assert len(started) == 2 and os.getpid() not in started
    groups = []
    for phase in range(4):
        if phase:
            pool.weights.publish(version(phase))
        batch = take_batch(pool, phase)
        assert len(batch) == 3 and {pid for *_, pid in batch} <= started
        assert all(len(set(acted)) == 1 and acted[0] <= phase for _, _, acted, _ in batch)
        for place, (group, nth, acted, _) in enumerate(batch):
            entry = pool.recorder.entries[group]
            assert (entry.fate, entry.phase, entry.place, entry.nth) == ("trained", phase, place, nth)
            assert entry.versions == [int(acted[0])] and entry.starts == [0]
        groups += [group for group, *_ in batch]
    queued = [pool.recorder.entries[group].queued_at for group in groups]
    assert queued == sorted(queued), "first in, first out"


def test_delays_are_evenly_spread_or_those_of_slow_actors() -> None:
    even, some = (read_lag(f"async[actors=5,delay=2.0,spread=3.0,slow={slow}]") for slow in (0, 2))
    assert isinstance(even, Async) and even.delays() == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert isinstance(some, Async) and some.delays() == [2.0, 2.0, 2.0, 6.0, 6.0]
    with pytest.raises(UserError, match="slow must be 0, or fewer than there are actors, not 5"):
        read_lag("async[actors=5,slow=5]")


def test_a_full_queue_holds_the_actors_back(start: Start) -> None:
    """Room for four groups, and two actors that wait with one each: no actor begins a seventh."""
    pool = start(Toy())
    until(lambda: fates(pool).count("queued") == 6)
    time.sleep(0.2)
    assert fates(pool) == ["queued"] * 6 and len(pool.queue) == 4 and len(pool.overflow) == 2
    assert [e.queued_at is None for e in pool.recorder.entries].count(True) == 2
    pool.take(0)
    until(lambda: fates(pool).count("queued") == 6)
    assert fates(pool).count("trained") == 3 and len(pool.recorder.entries) == 9


def test_stale_groups_are_dropped_when_a_batch_is_taken(start: Start) -> None:
    pool = start(Toy(), max_lag=2)
    until(lambda: fates(pool).count("queued") == 6)
    pool.weights.publish(version(3))
    batch = take_batch(pool, 3)
    assert [acted for _, _, acted, _ in batch] == [[3.0] * LENGTH] * 3
    assert fates(pool).count("dropped_stale") == 6


def test_weights_fetched_inside_a_row_are_recorded_with_their_start(start: Start) -> None:
    """The second group waits before its fourth decision; the next time to fetch is before the fifth."""
    pool = start(Toy(end="waits"), actors=1, fetch=2, groups=1)
    (member,) = pool.members
    until(lambda: (progress := member.counter.read(1)) is not None and progress.lengths == [3, 3])
    pool.weights.publish(version(7))
    until(lambda: fates(pool)[1] == "queued")
    (_, _, acted, _), (group, _, changed, _) = take_batch(pool, 7)[0], take_batch(pool, 8)[0]
    entry = pool.recorder.entries[group]
    assert acted == [0.0] * LENGTH and changed == [0.0] * 4 + [7.0]
    assert (group, entry.versions, entry.starts) == (1, [0, 7], [0, 4])


def test_a_killed_actor_is_replaced_and_its_group_counts_as_lost(start: Start) -> None:
    pool = start(Toy(seconds=0.02))
    until(lambda: len(pool.recorder.entries) > 3)
    number, pid = next(iter(pids(pool).items()))
    os.kill(pid, signal.SIGKILL)
    until(lambda: number not in pids(pool) and len(pids(pool)) == 2)
    assert max(pids(pool)) == 2, "a number of its own"
    for phase in range(3):
        if phase:
            pool.weights.publish(version(phase))
        pool.take(phase)
    until(lambda: any(e.actor == 2 and e.fate in ("queued", "trained") for e in pool.recorder.entries))
    pool.close()
    rows = pool.recorder.rows()
    mine = rows[rows["actor"] == number]
    assert (mine["fate"] == "lost").sum() in (0, 2), "two rows a group; none where it was waiting for room"
    for _, own in rows.groupby("actor"):
        assert sorted(own["nth"].unique()) == list(range(own["nth"].nunique()))
    assert set(rows["fate"]) <= {"trained", "queued", "lost", "in_flight"}
    assert (rows.loc[rows["fate"] == "trained"].groupby("phase").size() == 6).all()
    assert [ends[-1] for ends in rows.loc[rows["fate"] == "trained", "ends"]] == [LENGTH, LENGTH - 2] * 9


def test_an_error_in_an_actor_ends_the_run(start: Start) -> None:
    pool = start(Toy(end="raise"), actors=1)
    with pytest.raises(RuntimeError, match="actor 0 failed: ValueError: the floor is wet"):
        for phase in range(3):
            pool.take(phase)


def test_an_os_error_in_an_environment_is_not_a_lost_learner(start: Start) -> None:
    pool = start(Toy(end="no file"), actors=1)
    with pytest.raises(RuntimeError, match="actor 0 failed: FileNotFoundError: no floor"):
        pool.take(0)


@pytest.mark.parametrize(("end", "kind"), ERRORS.items())
def test_an_error_that_users_know_keeps_its_class(start: Start, end: str, kind: type[Exception]) -> None:
    pool = start(Toy(end=end), actors=1)
    with pytest.raises(kind) as caught:
        pool.take(0)
    assert str(caught.value) == f"{end}: see above"
    (note,) = caught.value.__notes__
    assert note.startswith("in the process of actor 0:\nTraceback") and "toy_actors.py" in note


def test_an_error_of_an_actor_is_one_line(start: Start, tmp_path: Path) -> None:
    pool = start(Toy(end="raise"), actors=1)
    with pytest.raises(RuntimeError) as caught:
        for phase in range(3):
            pool.take(phase)
    failure = describe(caught.value, tmp_path)
    assert (failure["class"], failure["message"]) == ("RuntimeError", "actor 0 failed: ValueError: the floor is wet")


@pytest.mark.parametrize("end", ["never opens", "exit"])
def test_actors_that_die_at_once_end_the_run(start: Start, end: str) -> None:
    pool = start(Toy(end=end), actors=1)
    if end == "exit":  # in their third group each: it goes on
        for phase in range(3):
            pool.take(phase)
        assert {entry.actor for entry in pool.recorder.entries} >= {0, 1, 2, 3}
        assert fates(pool).count("lost") >= 3
        return
    with pytest.raises(RuntimeError, match="4 actors died without delivering data, the last one with exit code 3"):
        pool.take(0)


def test_a_resumed_record_counts_unfinished_groups_as_lost(start: Start) -> None:
    pool = start(Toy())
    pool.take(0)
    until(lambda: fates(pool).count("queued") == 6)
    state = pool.state_dict()
    resumed = Recorder()
    resumed.load_state_dict(state)
    assert sorted(e.fate for e in resumed.entries) == ["lost"] * 6 + ["trained"] * 3
    again = start(Toy(), recorder=resumed)
    assert set(pids(again)) == {2, 3}, "new actors, whose numbers nobody had"
    assert take_batch(again, 1)[0][0] >= 9
    assert resumed.now() >= state["elapsed"] > 0


GROUP = Count(2, 2 * LENGTH - 2)  # what `Toy` makes at a time


def enter_ledger(ledger: Ledger, pool: ActorPool, phase: int) -> dict[str, int]:
    """Return the ledger of decisions after another batch."""
    contents, flow = pool.take(phase)
    handed = sum([GROUP] * len(contents), Count())
    totals = ledger.enter(phase, flow, handed, handed)
    return {name.partition("/")[2]: n for name, n in totals.items() if name.startswith("decisions/")}


def test_a_killed_actors_row_has_its_versions_and_counts_as_lost(start: Start) -> None:
    """The actor waits before each decision until it has another version, and dies before its fourth."""
    pool = start(Toy(end="killed", seconds=0.0), actors=1, fetch=1, groups=1, room=1)
    (member,) = pool.members
    for phase in range(1, 4):
        until(lambda phase=phase: (progress := member.counter.read(0)) and len(progress.versions) == phase)
        pool.weights.publish(version(phase))
    until(lambda: fates(pool)[0] == "lost")
    entry = pool.recorder.entries[0]
    assert (entry.versions, entry.starts, entry.lengths) == ([0, 1, 2, 3], [0, 1, 2, 3], [3, 3])
    assert entry.began_at is not None and entry.made_at is None and (entry.finished_in, entry.left_in) == (-1, 0)
    lines = [(line["versions"], line["ends"]) for line in entry.lines]
    assert lines == [([0, 1, 2], [1, 2, 3])] * 2
    decisions = enter_ledger(Ledger(), pool, 0)
    assert decisions["lost"] == 6 and decisions["generated"] == 6 + GROUP.decisions + decisions["queued"]


def test_a_lost_message_leaves_the_ledger_open(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actors count their own groups: one whose message is lost has no fate in the ledger."""
    handle = ActorPool._handle_message

    def lose_message(self: ActorPool, member: actor_pool._ActorProcess, message: Any) -> None:
        if isinstance(message, FinishedGroup) and member.group == 1:
            self._next(member)
        else:
            handle(self, member, message)

    monkeypatch.setattr(ActorPool, "_handle_message", lose_message)
    pool = start(Toy(), actors=1)
    until(lambda: fates(pool).count("queued") == 5)  # four in the queue, one waits, one is nowhere
    with pytest.raises(RuntimeError, match="ledger of sequences does not close after phase 0: generated 12"):
        enter_ledger(Ledger(), pool, 0)


def test_queued_groups_are_lost_in_the_first_phase_after_a_resume(start: Start) -> None:
    """Some of it was counted as queued before the stop, the rest was finished since then."""
    ledger, pool = Ledger(), start(Toy(), groups=2)
    until(lambda: fates(pool).count("queued") == 6)
    first = enter_ledger(ledger, pool, 0)
    assert (first["generated"], first["trained"], first["lost"]) == (48, 16, 0) and first["queued"] == 32
    until(lambda: fates(pool).count("queued") == 6)  # two more than were counted
    resumed = Recorder()
    resumed.load_state_dict(pool.state_dict())
    assert resumed.lost == Count(12, 48) and resumed.generated == Count(4, 16)
    then = enter_ledger(ledger, start(Toy(), groups=2, recorder=resumed), 1)
    assert (then["lost"], then["trained"], then["dropped"]) == (48, 32, 0)
    assert then["generated"] == 80 + then["queued"]
    lost = [e for e in resumed.entries if e.fate == "lost"]
    assert sorted((e.finished_in, e.left_in) for e in lost) == [(0, 1)] * 4 + [(1, 1)] * 2


def test_a_group_in_flight_at_a_checkpoint_counts_as_lost(start: Start) -> None:
    pool = start(Toy(end="killed"), actors=1, fetch=1)  # waits for a version before its second decision
    (member,) = pool.members
    until(lambda: (progress := member.counter.read(0)) is not None and progress.lengths == [1, 1])
    resumed = Recorder()
    resumed.load_state_dict(pool.state_dict())
    assert resumed.generated == resumed.lost == Count(2, 2)
    assert [(e.fate, e.versions, e.lengths) for e in resumed.entries] == [("lost", [0], [1, 1])]
    assert fates(pool) == ["in_flight"] and not pool.recorder.entries[0].versions, "it goes on itself"


def test_an_actor_that_finishes_after_close_is_told_to_end(start: Start) -> None:
    pool = start(Toy())
    until(lambda: fates(pool).count("queued") == 6)
    here, there = pool.context.Pipe()
    late = actor_pool._ActorProcess(9, 0, None, here, pool.members[0].counter, group=pool.recorder.begin(9, 0))
    pool.weights.closed.value = 1
    with pool.condition:
        pool._handle_message(late, FinishedGroup([0], [0], [5, 3], 0.0, 1.0, b"", GROUP))
    assert there.poll(0) and there.recv() is None


@pytest.mark.parametrize("kills", [1, MAX_DEATHS + 1])
def test_the_fork_server_may_be_killed_while_it_starts_an_actor(
    start: Start, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right after it has started one, of which the pool then does not know."""
    from multiprocessing import forkserver

    read, left = forkserver.read_signed, [kills]

    def broken(handle: int) -> int:
        number: int = read(handle)
        if left[0]:
            left[0] -= 1
            raise EOFError("unexpected EOF")
        return number

    monkeypatch.setattr(forkserver, "read_signed", broken)
    monkeypatch.setattr(actor_pool, "PAUSE", 0.0)
    if kills == 1:
        pool = start(Toy())
        assert {number for *_, number in take_batch(pool, 0)} <= set(pids(pool).values())
        assert len(pids(pool)) == 2
        return
    with pytest.raises(ActorsNotStarted, match="was killed 4 times in a row") as caught:
        start(Toy())
    assert "\n" not in str(caught.value) and "resumes from the last checkpoint" in str(caught.value)


@pytest.mark.faults
@pytest.mark.parametrize("starting", [False, True])
def test_killing_the_fork_server_and_an_actor_ends_nothing(
    start: Start, starting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is killed before the actor, or when it is asked to start the next one."""
    from multiprocessing import forkserver

    pool, read = start(Toy(seconds=0.01)), forkserver.read_signed
    take_batch(pool, 0)
    servers: list[int] = []

    def kill_server() -> None:
        servers.append(forkserver._forkserver._forkserver_pid)  # type: ignore[attr-defined]
        os.kill(servers[-1], signal.SIGKILL)

    def read_after_kill(handle: int) -> int:
        if not servers:
            kill_server()
        number: int = read(handle)
        return number

    monkeypatch.setattr(forkserver, "read_signed", read_after_kill)
    if not starting:
        kill_server()
    number, pid = next(iter(pids(pool).items()))
    os.kill(pid, signal.SIGKILL)
    until(lambda: pool.error is not None or (number not in pids(pool) and len(pids(pool)) == 2))
    ledger = Ledger()
    for phase in (1, 2, 3):
        assert enter_ledger(ledger, pool, phase)["trained"] == 3 * GROUP.decisions * phase
    until(lambda: any(e.actor == 2 and e.made_at is not None for e in pool.recorder.entries))
    assert forkserver._forkserver._forkserver_pid not in servers  # type: ignore[attr-defined]


ORPHANS = """
import time
from toy_actors import Toy, version
from staleharness.asynchronous.actor_process import ActorTiming
from staleharness.asynchronous.actor_pool import ActorPool, PoolConfig
from staleharness.asynchronous.group_lifecycle import Recorder
config = PoolConfig(Toy(), [ActorTiming(0, 0.0)] * 2, groups=1, rows=2, room=1, max_lag=9, length=5)
pool = ActorPool(config, Recorder(), version(0))
pool.take(0)
print(*(member.process.pid for member in pool.members), flush=True)
time.sleep(600)
"""


@pytest.mark.long
def test_actors_end_when_the_learner_is_killed() -> None:
    path = os.pathsep.join((str(HELPERS), str(ROOT)))
    learner = subprocess.Popen(
        [sys.executable, "-c", ORPHANS], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert learner.stdout is not None
    with learner:
        started = [int(pid) for pid in learner.stdout.readline().split()]
        assert len(started) == 2 and all(map(alive, started))
        learner.kill()
    until(lambda: not any(map(alive, started)))


def alive(pid: int) -> bool:
    """Return whether the process runs; one that has ended and was not waited for does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
