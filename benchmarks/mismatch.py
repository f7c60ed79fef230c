"""Cost of an actor that samples from a copy of the weights: a phase with MISMATCH=, as a ratio to one without.

    python benchmarks/mismatch.py [--quick] [--mismatches bf16_weights int4]

Hopper and word-problems, K = 8, a new version each phase, so a new copy each phase. Each run is in one process; phases
are measured in turns (the order changes), by processor time, once every run's buffer of versions is full. Methods are
blind to the mismatch (`behaviour=version`), because with one ratio a coarse copy writes completions a third longer.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import torch
from bench_table import show
from in_flight import seconds_in_turns

from staleharness.base.system_info import keep_freed_memory

MISMATCHES = ("bf16_weights", "fp8", "int4")
CAPACITY = 8
MOST = 1.15  # of a phase without mismatch


def simulation(env: str, mismatch: str, phases: int) -> Any:
    from staleharness.task import find_env
    from staleharness.training.loop import simulation_of

    settings = {"env": env, "algorithm": "ppo_clip", "capacity": CAPACITY, "mismatch": mismatch, "evaluations": 1}
    if mismatch != "none":
        settings["behaviour"] = "version"
    if env == "word-problems":
        size = {"prompts": 16, "completions": 8, "completion_tokens": 32, "prompt_tokens": 128, "learning_rate": 2e-4}
        sizes = {**size, "steps": phases, "minibatches": 1, "evaluation_problems": 1}
    else:
        sizes = {"steps": phases * 8 * 256, "num_envs": 8, "num_steps": 256, "evaluation_episodes": 1}
    return simulation_of(find_env(env)[1].settings.from_dict({**settings, **sizes}))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mismatches", nargs="*", default=MISMATCHES)
    parser.add_argument("--quick", action="store_true", help="fewer phases")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as a run does
    count, warm = 8 if options.quick else 24, CAPACITY + 1
    names = ["none", *options.mismatches]
    for env in ("Hopper-v5", "word-problems"):
        runs = {name: simulation(env, name, warm + count + 1) for name in names}
        seconds = seconds_in_turns(runs, warm, count)
        print(f"{env}, K = {CAPACITY}, one thread; {count} phases of each in turns, processor time")
        for name in names:
            print(f"{name:<24}{1000 * statistics.median(seconds[name]):>8.0f} ms")
        for name in options.mismatches:
            ratios = [a / b for a, b in zip(seconds[name], seconds["none"], strict=True)]
            show(f"a phase of {env}, MISMATCH={name} / none", ratios, f"<= {MOST}")


if __name__ == "__main__":
    main()
