"""Cost of a proximal policy: a forward pass over the minibatch, or arithmetic on numbers that are there already.

    python benchmarks/proximal.py [MODEL] [--device cpu] [--dtype float32] [--prompts 16] [--completions 8]
                                        [--prompt-tokens 40] [--completion-tokens 32] [--quick]

MODEL is a folder or a hub name; by default the word-problems model. Decoupled PPO recomputes the log-probabilities of
a minibatch under the policy at the start of the phase; A-3PO interpolates them, log π_prox = log μ + (1 − 1/d)
(log π − log μ). Both are timed in turns on the same minibatch of random tokens. The third line is A-3PO's whole loss
with its gradient with respect to the log-probabilities, which is what a run's column `loss` holds.

Published (arXiv 2512.06547, figure 1; a 1.5B model): 4 to 8 s against 0.0012 s, at least 3000 times.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_table import show

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from staleharness.algorithm import make_algorithm  # noqa: E402
from staleharness.batch import Decisions  # noqa: E402
from staleharness.language.model.causal_lm_policy import CausalLM  # noqa: E402
from staleharness.language.model.gpu_memory import fit_to_memory  # noqa: E402
from staleharness.language.spec import LanguageSpec  # noqa: E402
from staleharness.task import find_env  # noqa: E402

PUBLISHED = "published for a 1.5B model: 4 to 8 s against 0.0012 s, at least 3000 times"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", default="", help="a folder or a hub name")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    for name, default in (("prompts", 16), ("completions", 8), ("prompt-tokens", 40), ("completion-tokens", 32)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--quick", action="store_true", help="5 turns instead of 25")
    options = parser.parse_args()
    torch.set_num_threads(1)
    spec = LanguageSpec.from_dict(
        {
            "env": "word-problems",
            "algorithm": "a3po",
            "model": options.model,
            "device": options.device,
            "dtype": options.dtype,
            "prompts": options.prompts,
            "completions": options.completions,
            "prompt_tokens": options.prompt_tokens,
            "completion_tokens": options.completion_tokens,
        }
    )
    task: Any = find_env(spec.env)[1]()
    policy = CausalLM(task.model(spec, lambda line: print(line, file=sys.stderr)), spec)
    fit_to_memory(policy)
    seconds: dict[str, list[float]] = {name: [] for name in ("recompute", "interpolate", "whole loss")}
    steps = actions(policy)
    for turn in range(2 + (5 if options.quick else 25)):
        for name, step in steps.items():
            spent = seconds_of(step, policy.device)
            if turn >= 2:  # the first two turns warm up
                seconds[name].append(spent)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    print(
        f"{policy.size:,} parameters, {spec.sequences} completions of {spec.prompt_tokens} + "
        f"{spec.completion_tokens} tokens, {spec.dtype} on {spec.device}; medians of {len(seconds['recompute'])} turns"
    )
    for name, times in seconds.items():
        print(f"  {name:<12}{medians[name]:>12.6f} s   ({min(times):.6f} to {max(times):.6f})")
    ratio = medians["recompute"] / medians["interpolate"]
    print(f"  recompute / interpolate: {ratio:,.0f} times; {PUBLISHED}")
    ratios = [a / b for a, b in zip(seconds["recompute"], seconds["interpolate"], strict=True)]
    show("a proximal policy, recomputed / interpolated", ratios)


def actions(policy: CausalLM) -> dict[str, Callable[[], object]]:
    """Return the steps to time, on one minibatch: groups share their prompts, as in a run."""
    spec, device, rng = policy.spec, policy.device, np.random.default_rng(0)
    rows, width = spec.sequences, spec.completion_tokens
    tokens = rng.integers(3, len(policy.tokenizer), (spec.prompts, spec.prompt_tokens))
    prompt = torch.from_numpy(np.repeat(tokens, spec.completions, 0)).to(device)
    token = torch.from_numpy(rng.integers(3, len(policy.tokenizer), (rows, width))).to(device)
    mask = torch.ones(rows, width, device=device)
    behaviour, target = (
        torch.from_numpy(rng.normal(-1, 0.1, (rows, width)).astype(np.float32)).to(device) for _ in "ab"
    )
    lag = torch.from_numpy(rng.integers(0, 8, (rows, width)).astype(np.float32)).to(device)
    algorithm = make_algorithm(spec)

    def recompute() -> None:
        with torch.no_grad():
            for part in torch.arange(rows, device=device).split(policy.micro_batch or rows):
                policy.score(prompt[part], torch.ones_like(prompt[part]), token[part], mask[part], entropy="none")

    def interpolate() -> Tensor:
        with torch.no_grad():
            return behaviour + (1.0 - 1.0 / lag.clamp(min=1.0)) * (target - behaviour)

    def whole_loss() -> None:
        decisions = Decisions(
            target_logp=target.clone().requires_grad_(),
            behaviour_logp=behaviour,
            proximal_logp=behaviour,
            advantage=torch.ones_like(mask),
            lag=lag,
            gradient_lag=lag,
            mask=mask,
            state={},
        )
        algorithm.policy_loss(decisions).loss.sum().backward()

    return {"recompute": recompute, "interpolate": interpolate, "whole loss": whole_loss}


def seconds_of(step: Callable[[], object], device: torch.device) -> float:
    begin = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
