"""PPO end to end on MuJoCo, ours against CleanRL, Stable-Baselines3, sbx and the physics alone: one run, one thread.

    python benchmarks/training.py [--quick] [--env Hopper-v5] [--envs 8 64] [--only ours sbx] [--paper | --sweep]

The same work everywhere: Hopper-v5, 256 steps of each environment a phase, 10 epochs of 32 minibatches, 64 x 64 tanh
networks, normalised observations and rewards, Adam, gradient norm 0.5, no evaluation, no logging to files.

  ours      `Simulation.advance`, what a run of a sweep does, at K = 1 and K = 8 (the last with the lag model `uniform`)
  native    the same at K = 1 with learner=native; compiled: with learner=compiled
  cleanrl   a loop in the manner of CleanRL's ppo_continuous_action: SyncVectorEnv with the same wrappers, eager torch,
            autograd, Adam, all written out here (its package does not install beside a gymnasium of today)
  sb3       Stable-Baselines3 with VecNormalize, in an environment of its own under the cache folder
  sbx       the same in JAX, compiled, where it can be installed; without value clipping, which it lacks
  physics   `mj_step` alone, one thread: what no learner could beat

Blocks run in fresh processes, in turns (the order changes each time); the first phase of a block is not counted.
Printed are environment steps per second and CPU seconds, and ratios of neighbouring blocks by CPU seconds, which a busy
machine moves least: median, smallest, largest, and how far the physics alone is ahead of each, which is the limit.

`--paper` compares ours with the physics at the batch size of VACO's Table 1 instead: 500 environments of 1,000 steps
a phase, minibatches of 15,625, two threads each. `--sweep` compares ours with its native learners in the geometry of a
default sweep: 16 environments of 128 steps a phase, 8 minibatches of 256.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bench_table import show

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1])]

EPOCHS, MINIBATCHES, GAMMA, LAMBDA, CLIP = 10, 32, 0.99, 0.95, 0.2
SB3, SBX = "2.9.2", "0.28.0"
ONE_THREAD_OF_XLA = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
# (ours, a peer) -> the least that ours should be faster, with 8 environments
BARS = {("native", "cleanrl"): 3.3, ("compiled", "cleanrl"): 4.0, ("compiled", "sbx"): 2.0}
LEAST_OF_A_SWEEP = 1.25  # by which native learners should be faster than torch in its geometry


def staleharness_seconds(task: dict[str, Any], capacity: int = 1, learner: str = "torch") -> dict[str, float]:
    import torch

    from staleharness.task import find_env
    from staleharness.training.loop import simulation_of

    torch.set_num_threads(task["threads"])
    envs, steps, phases = task["envs"], task["steps"], task["phases"]
    name, family = find_env(task["env"])
    simulation = simulation_of(
        family.settings.from_dict(
            {
                "env": name,
                "algorithm": "ppo_clip",
                "capacity": capacity,
                "learner": learner,
                "steps": (phases + 1) * envs * steps,
                "num_envs": envs,
                "num_steps": steps,
                "epochs": EPOCHS,
                "minibatches": task.get("minibatches", MINIBATCHES),
                "evaluations": 1,
                "threads": task["threads"],
            }
        )
    )
    return time_phases(simulation.advance, task)


def stale(task: dict[str, Any]) -> dict[str, float]:
    """K = 8; the buffer fills before the clock starts."""
    return staleharness_seconds({**task, "warm": 8, "phases": task["phases"] + 7}, 8)


def time_phases(phase: Callable[[], Any], task: dict[str, Any]) -> dict[str, float]:
    """Environment steps per second, and CPU seconds per 1,000 of them, behind the warm-up."""
    warm = task.get("warm", 1)
    for _ in range(warm):
        phase()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(task["phases"] - warm):
        phase()
    steps = (task["phases"] - warm) * task["envs"] * task["steps"]
    return {"rate": steps / (time.perf_counter() - wall), "cpu": 1000.0 * (time.process_time() - cpu) / steps}


def cleanrl(task: dict[str, Any]) -> dict[str, float]:
    """PPO as CleanRL writes it: one script, modules, autograd, one environment step after the other."""
    import gymnasium
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    envs, length = task["envs"], task["steps"]
    count = envs * length

    def make() -> Any:
        env: Any = gymnasium.make(task["env"])
        env = gymnasium.wrappers.FlattenObservation(env)
        env = gymnasium.wrappers.RecordEpisodeStatistics(env)
        env = gymnasium.wrappers.ClipAction(env)
        env = gymnasium.wrappers.NormalizeObservation(env)
        env = gymnasium.wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
        env = gymnasium.wrappers.NormalizeReward(env, gamma=GAMMA)
        return gymnasium.wrappers.TransformReward(env, lambda reward: float(np.clip(float(reward), -10, 10)))

    vector = gymnasium.vector.SyncVectorEnv([make] * envs)
    obs_dim, act_dim = vector.single_observation_space.shape[0], vector.single_action_space.shape[0]  # type: ignore[index]

    def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> Any:
        linear = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(linear.weight, gain)
        nn.init.zeros_(linear.bias)
        return linear

    def mlp(outputs: int, gain: float) -> Any:
        return nn.Sequential(layer(obs_dim, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, outputs, gain))

    class Agent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.critic, self.actor = mlp(1, 1.0), mlp(act_dim, 0.01)
            self.log_std = nn.Parameter(torch.zeros(1, act_dim))

        def forward(self, x: Any, action: Any = None) -> Any:
            mean = self.actor(x)
            normal = torch.distributions.Normal(mean, self.log_std.expand_as(mean).exp())
            action = normal.sample() if action is None else action
            return action, normal.log_prob(action).sum(1), normal.entropy().sum(1), self.critic(x)

    agent = Agent()
    optimiser = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
    obs, actions = torch.zeros(length, envs, obs_dim), torch.zeros(length, envs, act_dim)
    logps, rewards, dones, values = (torch.zeros(length, envs) for _ in range(4))
    state = {"obs": torch.Tensor(vector.reset(seed=0)[0]), "done": torch.zeros(envs)}

    def phase() -> None:
        for t in range(length):
            obs[t], dones[t] = state["obs"], state["done"]
            with torch.no_grad():
                action, logp, _, value = agent(state["obs"])
            values[t], actions[t], logps[t] = value.flatten(), action, logp
            next_obs, reward, terminated, truncated, _ = vector.step(action.numpy())
            rewards[t] = torch.tensor(reward)
            done = np.logical_or(terminated, truncated)
            state["obs"], state["done"] = torch.Tensor(next_obs), torch.Tensor(done)
        with torch.no_grad():
            last = agent.critic(state["obs"]).flatten()
            advantages, running = torch.zeros_like(rewards), torch.zeros(envs)
            for t in reversed(range(length)):
                next_value = last if t == length - 1 else values[t + 1]
                alive = 1.0 - (state["done"] if t == length - 1 else dones[t + 1])
                error = rewards[t] + GAMMA * next_value * alive - values[t]
                advantages[t] = running = error + GAMMA * LAMBDA * alive * running
        flat = [x.reshape(count, *x.shape[2:]) for x in (obs, actions, logps, advantages, values)]
        returns = (advantages + values).reshape(count)
        indices, size, fractions = np.arange(count), count // MINIBATCHES, []
        for _ in range(EPOCHS):
            rng.shuffle(indices)
            for start in range(0, count, size):
                part = indices[start : start + size]
                x, act, behaviour_logp, advantage, value = (each[part] for each in flat)
                _, logp, entropy, new_value = agent(x, act)
                new_value = new_value.view(-1)
                difference = logp - behaviour_logp
                ratio = difference.exp()
                with torch.no_grad():
                    ((ratio - 1) - difference).mean()
                    fractions.append(((ratio - 1.0).abs() > CLIP).float().mean().item())
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped_ratio = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
                policy_loss = torch.max(-advantage * ratio, -advantage * clipped_ratio).mean()
                clipped_value = value + torch.clamp(new_value - value, -CLIP, CLIP)
                value_loss = torch.max((new_value - returns[part]) ** 2, (clipped_value - returns[part]) ** 2)
                loss = policy_loss - 0.0 * entropy.mean() + 0.5 * 0.5 * value_loss.mean()
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimiser.step()

    return time_phases(phase, task)


def sb3(task: dict[str, Any]) -> dict[str, float]:
    """PPO of Stable-Baselines3, in torch."""
    import torch
    from stable_baselines3 import PPO

    torch.set_num_threads(1)
    return time_sb3_ppo(PPO, task, {"activation_fn": torch.nn.Tanh}, clip_range_vf=CLIP)


def sbx(task: dict[str, Any]) -> dict[str, float]:
    """Its sibling in JAX, one compiled function for all gradient steps of an epoch's minibatch."""
    os.environ.setdefault("XLA_FLAGS", ONE_THREAD_OF_XLA)
    import torch
    from sbx import PPO

    torch.set_num_threads(1)
    return time_sb3_ppo(PPO, task, {})


def time_sb3_ppo(ppo: Any, task: dict[str, Any], network: dict[str, Any], **more: Any) -> dict[str, float]:
    """Time PPO of SB3 or sbx; a phase lies between two starts of a roll-out, as a callback sees them."""
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    clock: list[tuple[float, float]] = []

    class Clock(BaseCallback):  # type: ignore[misc]
        def _on_rollout_start(self) -> None:
            clock.append((time.perf_counter(), time.process_time()))

        def _on_step(self) -> bool:
            return True

    envs, length, phases = task["envs"], task["steps"], task["phases"]
    vector = VecNormalize(make_vec_env(task["env"], n_envs=envs, seed=0), gamma=GAMMA)
    model = ppo(
        "MlpPolicy",
        vector,
        n_steps=length,
        batch_size=envs * length // MINIBATCHES,
        n_epochs=EPOCHS,
        learning_rate=3e-4,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        clip_range=CLIP,
        ent_coef=0.0,
        vf_coef=0.5,
        max_grad_norm=0.5,
        policy_kwargs={"net_arch": {"pi": [64, 64], "vf": [64, 64]}, **network},
        device="cpu",
        seed=0,
        **more,
    )
    model.learn(phases * envs * length, callback=Clock())
    clock.append((time.perf_counter(), time.process_time()))
    (wall, cpu), (end, cpu_end) = clock[1], clock[-1]
    steps = (phases - 1) * envs * length
    return {"rate": steps / (end - wall), "cpu": 1000.0 * (cpu_end - cpu) / steps}


def physics(task: dict[str, Any]) -> dict[str, float]:
    """`mj_step` alone, an MjData for each environment, with the controls and the resets of an untrained policy."""
    import gymnasium
    import mujoco
    from stepping import Raw

    from staleharness.control.mujoco.physics import INTEGRATION

    robot: Any = gymnasium.make(task["env"]).unwrapped
    robot.reset(seed=0)
    model, envs, rng = robot.model, task["envs"], np.random.default_rng(0)
    raw = Raw(model, envs, task["threads"], robot.frame_skip, forces=False)
    start = np.empty(mujoco.mj_stateSize(model, INTEGRATION))
    mujoco.mj_getState(model, robot.data, start, INTEGRATION)
    controls = rng.uniform(-1.0, 1.0, (task["steps"], envs, model.nu))

    def phase() -> None:
        for t in range(task["steps"]):
            # an untrained policy stays upright for about 25 steps
            resets = dict.fromkeys(range(envs), start) if t % 25 == 0 else {}
            raw.step(controls[t], resets)

    return time_phases(phase, task)


SIDES: dict[str, Callable[[dict[str, Any]], dict[str, float]]] = {
    "ours": staleharness_seconds,
    "ours, K = 8": stale,
    "native": partial(staleharness_seconds, learner="native"),
    "compiled": partial(staleharness_seconds, learner="compiled"),  # in the first phase, which is not counted
    "cleanrl": cleanrl,
    "sb3": sb3,
    "sbx": sbx,
    "physics": physics,
}


def pythons_of(sides: list[str]) -> dict[str, str]:
    """The Python of each side that can run; one that pip cannot install is reported in a line and left out."""
    from peers import InstallError, environment

    beside = {"sb3": ("stable-baselines3", SB3), "sbx": ("sbx-rl", SBX, f"stable-baselines3=={SB3}")}
    pythons = dict.fromkeys(sides, sys.executable)
    for side in beside.keys() & set(sides):
        try:
            pythons[side] = str(environment(*beside[side], "gymnasium[mujoco]"))
        except InstallError as problem:
            print(f"  without {side}: {problem}", flush=True)
            del pythons[side]
    return pythons


def compare(pythons: dict[str, str], rounds: int, task: dict[str, Any]) -> None:
    """Blocks of each side in turns, and what they come to."""
    from peers import block, spread

    sides = list(pythons)
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for turn in range(rounds):
        for side in sides if turn % 2 == 0 else sides[::-1]:
            found[side].append(block(pythons[side], __file__, ["--side", side, "--task", json.dumps(task)]))
    envs, steps, minibatches = task["envs"], task["steps"], task.get("minibatches", MINIBATCHES)
    print(f"{task['env']}, {envs} environments x {steps} steps, minibatches of {envs * steps // minibatches}")
    print(f"  {'':<12}{'env steps/s':>32}{'CPU s per 1,000':>24}")
    for side, blocks in found.items():
        rate, cpu = spread([b["rate"] for b in blocks], 0), spread([b["cpu"] for b in blocks])
        print(f"  {side:<12}{rate:>32}{cpu:>24}", flush=True)
    medians = {side: statistics.median(b["cpu"] for b in blocks) for side, blocks in found.items()}
    names = {"ours": "training", "native": "learner=native", "compiled": "learner=compiled"}
    for ours in (side for side in names if side in found):
        for side in (side for side in found if side != ours and (ours == "ours" or side in ("ours", "cleanrl", "sbx"))):
            ratios = [b["cpu"] / a["cpu"] for a, b in zip(found[ours], found[side], strict=True)]
            limit = f"physics alone: {medians[side] / medians['physics']:.2g} x" if "physics" in medians else ""
            bar = BARS.get((ours, side)) if envs == 8 else None
            if "minibatches" in task and side == "ours":
                bar = LEAST_OF_A_SWEEP
            show(f"{names[ours]} {envs} x {task['env']} / {side}", ratios, f">= {bar}" if bar else limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 rounds of short blocks")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of each side")
    parser.add_argument("--env", default="Hopper-v5")
    parser.add_argument("--envs", type=int, nargs="*", default=[8, 64])
    parser.add_argument("--only", nargs="*", default=list(SIDES), choices=list(SIDES), help="sides to compare")
    parser.add_argument("--sweep", action="store_true", help="the geometry of a default sweep, torch and native")
    parser.add_argument("--paper", action="store_true", help="the batch size of a paper, against the physics")
    parser.add_argument("--side", choices=list(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--task", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.side is not None:
        print(json.dumps(SIDES[arguments.side](arguments.task)))
        return
    rounds, phases = (2, 3) if arguments.quick else (arguments.rounds, 6)
    task = {"env": arguments.env, "steps": 256, "threads": 1, "phases": phases}
    sides = [side for side in SIDES if side in arguments.only]
    if arguments.paper:
        rounds, sides, arguments.envs = (1 if arguments.quick else 3), ["ours", "physics"], [500]
        task |= {"steps": 1000, "threads": 2, "phases": 2}
    if arguments.sweep:
        sides, arguments.envs = [side for side in ("ours", "native", "compiled") if side in sides], [16]
        task |= {"steps": 128, "minibatches": 8, "phases": 2 * phases}
    print(
        f"one run, {task['threads']} thread(s), {rounds} blocks of {task['phases'] - 1} phases each, in turns; "
        f"Python {platform.python_version()}, {os.cpu_count()} cores at load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    pythons = pythons_of(sides)
    for envs in arguments.envs:
        compare(pythons, rounds, {**task, "envs": envs})


if __name__ == "__main__":
    main()
