"""Speed of MuJoCo environments, as ratios to the physics alone and to gymnasium's SyncVectorEnv.

    python benchmarks/stepping.py [--quick] [--envs 500] [--threads 2]

Four runners walk through the very same states with the same actions, in turns of a few steps, so that a busy
machine slows all of them down alike:

  ours   the whole environment: physics, observation, reward, termination, reset;
  raw    the physics alone: `mj_step` in a loop on as many threads, one MjData per environment, as a C program
         would do it (called from Python once per environment step: about 1 microsecond; each thread takes the
         next environment when it is done with its last); a reset is a copied state;
  needed the physics that the environment cannot do without: raw, and where contact forces are observed (Ant,
         Humanoid) `mj_rnePostConstraint` after the last substep;
  sync   gymnasium's SyncVectorEnv of the same environments.

Printed are ratios of speeds, ours to each of the others: median and worst of all turns. On two free cores the best
possible wall ratio to needed is about 1. Ratios of CPU seconds (of all threads) suffer less from other programs on the
machine; on free cores the wall ratio to sync is about `threads` times the CPU ratio. No limit is enforced; all four
must arrive in the same state.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
from bench_table import show
from gymnasium.vector import AutoresetMode, SyncVectorEnv

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from staleharness.control.mujoco.physics import INTEGRATION
from staleharness.task import find_env

# peer -> the limit of a ratio to it, in words
PEERS = {"mj_step": "without contact forces: 1 x", "needed physics": "physics alone: 1 x", "SyncVectorEnv": ""}
MAIN = ("Hopper-v5", "HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")


class Raw:
    """One MjData per environment and a loop of `mj_step` over them, contact forces after it where asked for."""

    def __init__(self, model: Any, num_envs: int, threads: int, frame_skip: int, forces: bool) -> None:
        self.model, self.frame_skip, self.forces, self.threads = model, frame_skip, forces, threads
        self.data = [mujoco.MjData(model) for _ in range(num_envs)]
        self.controls = [data.ctrl for data in self.data]
        self.pool = ThreadPoolExecutor(threads)

    def load(self, rows: Any) -> None:
        for data, row in zip(self.data, rows, strict=True):
            mujoco.mj_setState(self.model, data, row, INTEGRATION)

    def rows(self) -> Any:
        rows = np.empty((len(self.data), mujoco.mj_stateSize(self.model, INTEGRATION)))
        for data, row in zip(self.data, rows, strict=True):
            mujoco.mj_getState(self.model, data, row, INTEGRATION)
        return rows

    def step(self, actions: Any, starts: dict[int, Any]) -> None:
        common = iter(range(len(self.data)))
        helpers = [self.pool.submit(self._work, common, actions) for _ in range(self.threads - 1)]
        self._work(common, actions)
        for helper in helpers:
            helper.result()
        for i, row in starts.items():
            mujoco.mj_setState(self.model, self.data[i], row, INTEGRATION)

    def _work(self, common: Iterator[int], actions: Any) -> None:
        model, frame_skip, data, controls = self.model, self.frame_skip, self.data, self.controls
        for i in common:
            controls[i][:] = actions[i]
            mujoco.mj_step(model, data[i], frame_skip)
            if self.forces:
                mujoco.mj_rnePostConstraint(model, data[i])


def clocks() -> Any:
    """Wall seconds, and CPU seconds of all threads."""
    return np.array([time.perf_counter(), time.process_time()])


def turn(vector: Any, actions: Any) -> tuple[Any, list[Any]]:
    """Seconds for these steps and the resets they ask for, and which environments were reset after each."""
    dones, seconds = [], np.zeros(2)
    for action in actions:
        start = clocks()
        _, _, terminated, truncated, _ = vector.step(action)
        done = terminated | truncated
        if done.any():
            vector.reset(options={"reset_mask": done.copy()})
        seconds += clocks() - start
        dones.append((done, vector.get_state()["physics"] if hasattr(vector, "get_state") else None))
    return seconds, dones


def replay(physics: Raw, before: Any, actions: Any, dones: list[Any]) -> Any:
    """Seconds of the physics for a turn of ours."""
    physics.load(before)
    seconds = np.zeros(2)
    for action, (done, rows) in zip(actions, dones, strict=True):
        starts = {i: rows[i] for i in np.flatnonzero(done).tolist()}
        start = clocks()
        physics.step(action, starts)
        seconds += clocks() - start
    return seconds


def measure(env: str, num_envs: int, threads: int, turns: int, steps: int) -> tuple[Any, float]:
    """Ratios to raw, needed and sync, [turns, 3, (wall, CPU)], and our environment steps per second."""
    found, family = find_env(env)
    task: Any = family()
    ours = task.make(found, num_envs, threads)
    sync = SyncVectorEnv([lambda: gymnasium.make(env)] * num_envs, autoreset_mode=AutoresetMode.DISABLED)
    robot: Any = gymnasium.make(env).unwrapped
    forces = ours._formulas.contact_forces
    raw, needed = (Raw(robot.model, num_envs, threads, robot.frame_skip, each) for each in (False, forces))
    rng = np.random.default_rng(0)

    def draw(count: int) -> Any:
        high = ours.single_action_space.high
        return rng.uniform(-high, high, (count, *ours.action_space.shape)).astype(np.float32)

    ours.reset(seed=0)
    sync.reset(seed=0)
    warm = draw(20)  # so that episodes are of mixed ages
    turn(ours, warm)
    turn(sync, warm)
    ratios, total = [], 0.0
    for _ in range(turns):
        actions = draw(steps)
        before = ours.get_state()["physics"]
        mine, dones = turn(ours, actions)
        theirs = [replay(physics, before, actions, dones) for physics in (raw, needed)]
        for physics in (raw, needed):
            assert np.array_equal(physics.rows(), ours.get_state()["physics"]), "raw went another way"
        theirs.append(turn(sync, actions)[0])
        ratios.append(np.array(theirs) / mine)
        total += mine[0]
    qpos = np.array([e.unwrapped.data.qpos for e in sync.envs])  # type: ignore[attr-defined]
    assert np.array_equal(qpos, ours._physics.fields["qpos"]), "SyncVectorEnv went another way"
    ours.close()
    sync.close()
    return np.array(ratios), num_envs * steps * turns / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="3 turns of 4 steps instead of 9 of 10")
    parser.add_argument("--envs", type=int, default=500)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=MAIN, help="environment ids")
    arguments = parser.parse_args()
    turns, steps = (3, 4) if arguments.quick else (9, 10)
    print(f"{arguments.envs} environments, {arguments.threads} threads, {turns} turns of {steps} steps")
    titles = [f"to {whom}, {clock}" for whom in ("raw", "needed", "sync") for clock in ("wall", "CPU")]
    print(f"{'':<16}" + "".join(f"{title:>18}" for title in titles))
    print(f"{'':<16}" + f"{'median':>9}{'worst':>9}" * 6 + f"{'env steps/s':>13}")
    rows = []
    for env in arguments.only:
        ratios, rate = measure(env, arguments.envs, arguments.threads, turns, steps)
        columns = ratios.reshape(turns, -1).T
        cells = "".join(f"{np.median(column):>9.2f}{column.min():>9.2f}" for column in columns)
        print(f"{env:<16}{cells}{rate:>13,.0f}", flush=True)
        rows.append((env, ratios[:, :, 0].T))
    for env, ratios in rows:
        for (peer, limit), values in zip(PEERS.items(), ratios, strict=True):
            show(f"stepping {arguments.envs} x {env} / {peer}, wall", values.tolist(), limit)


if __name__ == "__main__":
    main()
