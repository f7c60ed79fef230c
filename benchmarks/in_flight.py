"""Cost of weights that change inside a completion: a phase of word-problems by lag model, as ratios to `uniform`.

    python benchmarks/in_flight.py [--quick] [--models areal partial] [--capacity 8] [--prompts 64]

Each model has a run of its own, in one process; phases are measured in turns (the order changes), by processor time,
once every run's buffer of versions is full.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from bench_table import show

from staleharness.base.system_info import keep_freed_memory

MODELS = ("areal", "pipeline_rl", "partial", "inflight:8")
MOST = 2.5  # of a phase under `uniform`


def simulation(lag: str, capacity: int, phases: int, prompts: int) -> Any:
    from staleharness.task import find_env
    from staleharness.training.loop import simulation_of

    settings = {"env": "word-problems", "algorithm": "ppo_clip", "capacity": capacity, "lag": lag}
    size = {"prompts": prompts, "completions": 8, "completion_tokens": 32, "prompt_tokens": 128, "learning_rate": 2e-4}
    steps = {"steps": phases, "minibatches": 1, "evaluations": 1, "evaluation_problems": 1}
    return simulation_of(find_env("word-problems")[1].settings.from_dict({**settings, **size, **steps}))


def seconds_in_turns(runs: Mapping[str, Any], warm: int, count: int) -> dict[str, list[float]]:
    """Return the processor seconds of `count` phases of each run after `warm` others; the order of the runs changes."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    rng = np.random.default_rng(0)
    for phase in range(warm + count):
        for name in rng.permutation(list(runs)).tolist():
            begin = time.process_time()
            runs[name].advance()
            if phase >= warm:
                seconds[name].append(time.process_time() - begin)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--capacity", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=16, help="of a phase, with 8 completions each")
    parser.add_argument("--quick", action="store_true", help="fewer phases")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as a run does
    count, warm = 8 if options.quick else 24, options.capacity + 1
    names = ["uniform", *options.models]
    runs = {name: simulation(name, options.capacity, warm + count + 1, options.prompts) for name in names}
    seconds = seconds_in_turns(runs, warm, count)
    rows = f"{options.prompts} x 8 rows"
    print(f"word-problems, K = {options.capacity}, {rows}, one thread; {count} phases of each in turns, processor time")
    for name in names:
        print(f"{name:<24}{1000 * statistics.median(seconds[name]):>8.0f} ms")
    for name in options.models:
        ratios = [a / b for a, b in zip(seconds[name], seconds["uniform"], strict=True)]
        show(f"a phase of word-problems, {rows}, LAG={name} / uniform", ratios, f"<= {MOST}")


if __name__ == "__main__":
    main()
