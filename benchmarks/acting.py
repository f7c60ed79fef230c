"""Cost of K past policies: one vector step of Hopper environments at several capacities, as ratios to K = 1.

    python benchmarks/acting.py [--quick] [--envs 500 16]

Environments are dealt out evenly to the K versions: with --envs 8, K = 8 is eight batches of one environment each.
A vector step is what the collector does: act (all versions in one batched computation) and step the physics. Every
slice measures all capacities in turn by processor time, so that a busy machine slows all of them alike.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from bench_table import show

from staleharness.control.action_distributions import action_converter, distribution_of
from staleharness.control.policy import BatchedPolicies, MLPPolicy
from staleharness.control.task import ControlTask
from staleharness.task import find_env

CAPACITIES = (1, 4, 8, 16, 64)  # those that are not more than the environments
MOST = 1.05  # of a vector step at K = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="Hopper-v5")
    parser.add_argument("--envs", type=int, nargs="*", default=[500, 16], help="a default sweep has 16")
    parser.add_argument("--threads", type=int, default=2, help="of the physics; torch has one")
    parser.add_argument("--quick", action="store_true", help="fewer slices")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for envs in options.envs:
        compare(options.env, envs, options.threads, 8 if options.quick else 40)


def compare(env_name: str, envs: int, threads: int, slices: int) -> None:
    name, family = find_env(env_name)
    task = family()
    assert isinstance(task, ControlTask)
    env = task.make(name, envs, threads)
    obs, _ = env.reset(seed=0)
    policy = MLPPolicy(obs.shape[1], distribution_of(env), (64, 64), seed=0)
    capacities = [k for k in CAPACITIES if k <= envs]
    versions = [policy.snapshot(v, v) for v in range(max(capacities))]
    rng = np.random.default_rng(0)
    env_index = np.arange(envs)
    actors = {k: BatchedPolicies(policy, versions[:k], rng.permutation(env_index % k)) for k in capacities}
    to_env = action_converter(env)
    acting: dict[int, list[float]] = {k: [] for k in capacities}
    whole: dict[int, list[float]] = {k: [] for k in capacities}
    steps = max(5, 500 // envs)
    for _ in range(slices):
        for k in rng.permutation(capacities).tolist():
            act = 0.0
            begin = time.process_time()
            for _ in range(steps):
                noise = torch.from_numpy(policy.distribution.noise(rng, envs))
                t = time.process_time()
                with torch.no_grad():
                    action, _ = actors[k].act(torch.from_numpy(obs.astype(np.float32)), noise)
                act += time.process_time() - t
                obs, _, terminated, truncated, _ = env.step(to_env(action.numpy()))
                if (done := terminated | truncated).any():
                    obs, _ = env.reset(options={"reset_mask": done})
            whole[k].append((time.process_time() - begin) / steps)
            acting[k].append(act / steps)
    env.close()
    print(f"{envs} x {name}, {threads} physics threads; medians of {len(whole[1])} interleaved slices, processor time")
    print(f"{'K':>4} {'acting, us':>11} {'vector step, us':>16} {'step / step at K = 1':>21}")
    for k in capacities:
        ratio = statistics.median(a / b for a, b in zip(whole[k], whole[1], strict=True))
        act, step = statistics.median(acting[k]) * 1e6, statistics.median(whole[k]) * 1e6
        print(f"{k:>4} {act:>11,.0f} {step:>16,.0f} {ratio:>21.3f}")
    last = capacities[-1]
    ratios = [a / b for a, b in zip(whole[last], whole[1], strict=True)]
    show(f"a vector step of {envs} x {name}, K = {last} / K = 1", ratios, f"<= {MOST}")


if __name__ == "__main__":
    main()
