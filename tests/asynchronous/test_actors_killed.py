"""Actors that are killed at moments drawn at random, and runs that are resumed: every trace replays its run."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from races import Mortal, but_assigned, digests_and_metrics, learner_digest, pids, until
from small_specs import small_control
from whole_runs import one_thread as one_thread

from staleharness.trace import read_trace
from staleharness.training.loop import simulation_of

PHASES, ROWS, LENGTH, ACTORS = 5, 4, 24, 3
SMALL = small_control(
    PHASES,
    ROWS,
    LENGTH,
    env="Pendulum-v1",
    capacity=8,
    lag=f"async[actors={ACTORS},queue=1.5,fetch=6,delay=0.002]",
    epochs=1,
    anneal_learning_rate=False,
)


def mortal(draw: random.Random) -> Any:
    """A run some of whose actors end themselves: in their first group or the second, anywhere in it."""
    simulation: Any = simulation_of(SMALL)
    numbers = draw.sample(range(ACTORS + 2), draw.randint(1, 2))
    ends = {number: (draw.randrange(2), draw.randint(0, LENGTH)) for number in numbers}
    config = simulation.actors.config
    preload = [*config.preload, "races"]
    simulation.actors.config = replace(config, open=Mortal(config.open, ends), preload=preload)
    return simulation


def kill(pool: Any, place: int) -> None:
    """Kill the actor at a place, and wait until another has replaced it."""
    with pool.condition:
        (member,) = (m for m in pool.members if m.place == place)
        os.kill(member.process.pid, signal.SIGKILL)
    until(lambda: member.number not in pids(pool) and len(pids(pool)) == ACTORS)


def faulty(seed: int, to: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Hash of the learner and metrics after each phase of a run that actors are killed in, by themselves and from
    outside; two of three runs stop after a phase and go on from a checkpoint."""
    draw = random.Random(seed)
    stop, killed, place = draw.randint(1, PHASES - 1), draw.randint(1, PHASES - 2), draw.randrange(ACTORS)
    simulation, hashes, metrics = mortal(draw), [], []
    while simulation.phase < PHASES:
        metrics.append(simulation.advance().metrics)
        hashes.append(learner_digest(simulation))
        if simulation.phase == killed:
            kill(simulation.actors.pool, place)
        if simulation.phase == stop and seed % 3:
            state = simulation.state_dict()
            simulation.close()
            simulation = mortal(draw)
            simulation.load_state_dict(state)
    to.write_bytes(simulation.artifacts()["trace.parquet"])
    assert max(entry.actor for entry in simulation.actors.recorder.entries) >= ACTORS, "nobody was killed"
    simulation.close()
    return hashes, metrics


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(s, marks=pytest.mark.faults) for s in range(2, 22))])
@pytest.mark.long
def test_the_replay_is_the_run_whoever_was_killed_and_when(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    hashes, metrics = faulty(seed, path)
    again, repeated = digests_and_metrics(simulation_of(replace(SMALL, lag=f"trace:{path}")))
    assert again == hashes and len(set(hashes)) == PHASES
    assert but_assigned(repeated) == but_assigned(metrics), "accounts and all"
    _, rows = read_trace(str(path))
    last, lost = metrics[-1], rows[(rows["fate"] == "lost") & rows["left_in"].isin(range(PHASES))]
    assert (last["sequences/lost"], last["decisions/lost"]) == (len(lost), lost["ends"].map(max).sum())
    for unit in ("sequences", "decisions"):
        fates = ("trained", "dropped", "masked", "queued", "lost")
        assert last[f"{unit}/generated"] == sum(last[f"{unit}/{fate}"] for fate in fates)
