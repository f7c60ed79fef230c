"""One GPU on a language run at paper size: tokens per second, peak memory, share of the matrix peak.

    python benchmarks/gpu.py [--rounds 3] [--versions 16] [--plain] [--micro-batch 0] [--parts one,past] [--out FOLDER]

A Qwen2 of the shape of Qwen2.5-0.5B with random weights is saved and loaded through the path that users take; a
generation round has 32 prompts x 8 completions of 512 + 512 random tokens (VACO's Table 2), and no completion ends
early, so that every token is paid for. Phases of a run of `PRESET=paper` with PPO-clip are timed as a worker makes it:
deterministic algorithms, bfloat16, gradient checkpointing (`--plain`: without), a search for stop strings. Parts:

    one        K = 1, with an evaluation, a checkpoint and its loading; the matrix peak (one large bfloat16 product)
    past       a full buffer of `--versions`
    crowded    the same with room on the device for a quarter of them: the others come from the host, again and again
    mixed      prompts of 64 to 512 tokens
    in_flight  weights that change every 128 tokens of a completion (`LAG=inflight:128`, K = 4)
    shared     two runs on the GPU at a time, as with RUNS_PER_GPU=2

The first phase of each warms up and does not count. OUT/<device>.json is written after each part, with the command;
"complete" says whether all were timed. Without a GPU: one line, exit code 2. `--tiny` runs the same code with a model
of a few thousand parameters on the CPU, as a smoke test.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

SHAPES: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": {
        "vocab_size": 151_936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
    },
    "tiny": {
        "vocab_size": 60,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 128,
    },
}
BATCHES: dict[str, dict[str, Any]] = {
    "Qwen2.5-0.5B": {"prompts": 32, "completions": 8, "prompt_tokens": 512, "completion_tokens": 512},
    "tiny": {"prompts": 2, "completions": 3, "prompt_tokens": 6, "completion_tokens": 5},
}
PARTS = ("one", "past", "crowded", "mixed", "in_flight", "shared")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="generation rounds that count")
    parser.add_argument("--versions", type=int, default=16, help="K of the second measurement")
    parser.add_argument("--plain", action="store_true", help="keep activations, without checkpointing")
    parser.add_argument("--micro-batch", type=int, default=0, help="completions at once; 0: as many as fit")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure")
    parser.add_argument("--share", type=int, default=1, help="runs that the GPU's memory is divided among")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "reference" / "gpu")
    parser.add_argument("--tiny", action="store_true", help="a tiny model on the CPU")
    options = parser.parse_args(arguments)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # as workers have it
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        print(f"{error}: make setup EXTRAS=llm", file=sys.stderr)
        return 2
    if not options.tiny and not torch.cuda.is_available():
        print("no CUDA device here; `--tiny` runs the same code on the CPU", file=sys.stderr)
        return 2
    flags = [
        f"--{k.replace('_', '-')}" + ("" if v is True else f" {v}")
        for k, v in vars(options).items()
        if v not in (False, parser.get_default(k))
    ]
    record: dict[str, Any] = {"command": " ".join(["python benchmarks/gpu.py", *flags]), "complete": False}
    options.out.mkdir(parents=True, exist_ok=True)
    for found in measure(options):
        record |= found
        name = re.sub(r"[^A-Za-z0-9]+", "_", record["device"]).strip("_").lower()
        suffix = "_plain" if options.plain else ""
        (options.out / f"{name}{suffix}.json").write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))
    return 0


def save_model(folder: Path, shape: str) -> None:
    """Random weights, and a tokenizer that knows a few words; the model's other tokens mean nothing."""
    import torch
    import transformers

    from staleharness.language.word_tokenizer import word_tokenizer

    tokenizer = word_tokenizer(["What is 1 + 1?\n#### 2"], range(10))
    config = transformers.Qwen2Config(
        **SHAPES[shape],
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield entries of the record, first what is measured, then those of each part."""
    import torch
    import transformers

    from staleharness import __version__

    shape, device = ("tiny", "cpu") if options.tiny else ("Qwen2.5-0.5B", "cuda")
    parts = options.parts.split(",")
    torch.set_deterministic_debug_mode("error")  # as workers have it
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010
    torch.backends.cuda.enable_cudnn_sdp(False)
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(1.0 / options.share)
        torch.cuda.reset_peak_memory_stats()
    yield {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu tiny",
        "versions": {"staleharness": __version__, "torch": torch.__version__, "transformers": transformers.__version__},
        "model": {"shape": shape, **SHAPES[shape]},
        "batch": BATCHES[shape],
        "gradient_checkpointing": not options.plain,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "rounds": options.rounds,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_model(folder, shape)
        write_problems(folder)
        finite = True
        if "one" in parts:
            found = one_version(options, folder, shape, device)
            finite &= found.pop("finite")
            yield found
        for part, entry, arguments in variants(options.versions):
            if part in parts:
                run = simulation(options, folder, shape, device, **arguments)
                seconds, run_finite = time_phases(run, options.rounds)
                finite &= run_finite
                yield {
                    entry: {
                        "K": run.spec.capacity,
                        "together": run.policy.parallel_versions,
                        "micro_batch": run.policy.micro_batch or run.spec.sequences,
                        "seconds_per_round": seconds,
                        "minutes_per_256_steps": minutes(seconds),
                    }
                }
                del run
    if device == "cuda":
        yield {"peak_memory_gib": round(torch.cuda.max_memory_reserved() / 2**30, 2)}
        torch.cuda.empty_cache()
    if "shared" in parts:
        yield {"two_runs_on_the_gpu": two_runs(options)}
    yield {"finite": finite, "complete": set(parts) >= set(PARTS)}


def variants(versions: int) -> list[tuple[str, str, dict[str, Any]]]:
    """Return (part, its entry in the record, arguments of `simulation`) of runs of which only phases are timed."""
    return [
        ("past", "with_past_versions", {"capacity": versions}),
        ("crowded", "with_room_for_a_quarter", {"capacity": versions, "room": max(1, versions // 4)}),
        ("mixed", "with_prompts_of_64_to_512_tokens", {"capacity": 1, "shortest": 64}),
        ("in_flight", "with_weights_that_change_every_128_tokens", {"capacity": 4, "lag": "inflight:128"}),
    ]


def one_version(options: argparse.Namespace, folder: Path, shape: str, device: str) -> dict[str, Any]:
    """Return the entries of K = 1: seconds, tokens per second, an evaluation, a checkpoint, share of the peak."""
    peak = matrix_peak(device, 256 if options.tiny else 16_384)
    one = simulation(options, folder, shape, device, capacity=1)
    seconds, finite = time_phases(one, options.rounds)
    spec, policy = one.spec, one.policy
    begin = time.perf_counter()
    scores = one.evaluate()
    evaluation = (time.perf_counter() - begin) / len(scores.returns["deterministic"])
    operations, tokens = flops(policy, spec), spec.sequences * spec.completion_tokens
    return {
        "parameters": policy.size,
        "micro_batch": policy.micro_batch or spec.sequences,
        "decode_batch": policy.decode_batch or spec.sequences,
        "seconds_per_round": seconds,
        "minutes_per_256_steps": minutes(seconds),
        "checkpoint": time_checkpoint(one, folder),
        "evaluation_seconds_per_problem": round(evaluation, 5),
        "generated_tokens_per_second": round(tokens / seconds["generate"]),
        "scored_tokens_per_second": round(tokens / seconds["score"]),
        "trained_tokens_per_second": round(tokens / seconds["train"]),
        "matrix_peak_tflops": round(peak / 1e12, 3),
        "training_tflops": round(operations / seconds["train"] / 1e12, 6),
        "share_of_matrix_peak": round(operations / seconds["train"] / peak, 6),
        "share_counts": "one forward and one backward pass, not what micro-batches and checkpointing recompute",
        "finite": finite,
    }


def minutes(seconds: dict[str, float]) -> float:
    """Return the minutes of 256 steps, without evaluations, from the seconds of the parts of one."""
    return round(256 * (seconds["collect"] + seconds["learn"]) / 60, 2)


def two_runs(options: argparse.Namespace) -> dict[str, Any]:
    """Return seconds per round of two processes that time K = 1 at once, each with half of the GPU's memory."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--parts", "one", "--share", "2", "--rounds", str(options.rounds)]
        command += ["--tiny"] if options.tiny else []
        outs = [Path(folder) / str(i) for i in range(2)]
        runs = [subprocess.Popen([*command, "--out", str(out)], stdout=subprocess.DEVNULL) for out in outs]
        codes = [run.wait() for run in runs]
        if any(codes):
            raise RuntimeError("a run beside another failed")
        records = [json.loads(next(out.glob("*.json")).read_text()) for out in outs]
    return {
        "seconds_per_round": [record["seconds_per_round"] for record in records],
        "micro_batch": [record["micro_batch"] for record in records],
        "peak_memory_gib": [record.get("peak_memory_gib") for record in records],
    }


def time_checkpoint(run: Any, folder: Path) -> dict[str, float]:
    """Return seconds to save a run's state and to load it, as a worker does, and its size."""
    from staleharness.training import checkpoint

    begin = time.perf_counter()
    checkpoint.save(folder, 1, run.state_dict())
    saved = time.perf_counter()
    size = checkpoint.size(folder)
    run.load_state_dict(checkpoint.load_newest(folder))
    return {
        "gigabytes": round(size / 1e9, 3),
        "save_seconds": round(saved - begin, 3),
        "load_seconds": round(time.perf_counter() - saved, 3),
    }


def simulation(
    options: argparse.Namespace,
    folder: Path,
    shape: str,
    device: str,
    capacity: int,
    shortest: int = 0,
    lag: str = "uniform",
    room: int = 0,
) -> Any:
    """A run of the paper's preset on random prompts, its buffer full. shortest: tokens of the shortest prompt; 0: all
    are of full length. room: versions that stay on the device; 0: as many as fit."""
    import numpy as np

    from staleharness.language.problem import Problem
    from staleharness.language.prompt_formatting import PromptSet, find_prompt
    from staleharness.language.spec import LanguageSpec
    from staleharness.training.loop import simulation_of

    run: Any = simulation_of(
        LanguageSpec.from_dict(
            {
                **LanguageSpec.presets["paper"],
                "hyper": {},
                "env": "gsm8k",
                "algorithm": "ppo_clip",
                "model": str(folder),
                "data": str(folder),
                "capacity": capacity,
                "lag": lag,
                "device": device,
                "micro_batch": options.micro_batch,
                "gradient_checkpointing": not options.plain,
                "evaluations": 1,
                "steps": 256,
                "prompt_format": "plain",
                **BATCHES[shape],
            }
        )
    )
    run.generator.sampler.stops = find_prompt("verl").stops
    if room:
        run.policy.keep_resident(room)
    run.policy.end = [-1]  # no completion ends before its limit
    rng = np.random.default_rng(0)
    longest = run.spec.prompt_tokens
    tokens = rng.integers(3, SHAPES[shape]["vocab_size"], (256, longest)).tolist()
    if shortest:
        lengths = rng.integers(min(shortest, longest), longest + 1, 256).tolist()
        tokens = [row[:length] for row, length in zip(tokens, lengths, strict=True)]
    run.generator.sampler.prompts = run.test = PromptSet([Problem("", "#### 1", "1")] * 256, tokens, 0)
    run.phase = max(1, capacity - 1)  # the untrained policy is not evaluated
    for phase in range(run.phase):
        run.buffer.push(run.policy.snapshot(phase, phase))
    return run


def time_phases(run: Any, rounds: int) -> tuple[dict[str, float], bool]:
    """Return median seconds of the phases after the first, by part, and whether all losses were finite."""
    records = []
    for _ in range(1 + rounds):
        begin = time.perf_counter()
        records.append(run.advance())
        print(f"K={run.spec.capacity} {run.spec.lag}: {time.perf_counter() - begin:.2f} s", file=sys.stderr)
    found = {name: statistics.median(r.seconds[name] for r in records[1:]) for name in records[0].seconds}
    finite = all(math.isfinite(r.metrics["policy_loss"]) for r in records)
    return {name: round(value, 4) for name, value in found.items() if name != "evaluate"}, finite


def write_problems(folder: Path) -> None:
    """Write problems for the task to load; the prompts are random tokens."""
    for split in ("train", "test"):
        rows = [{"question": "1 + 1", "answer": f"#### {i % 10}"} for i in range(8)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def flops(policy: Any, spec: Any) -> float:
    """Count operations of a forward and a backward pass over the batch: matrix products, causal half of attention."""
    config = policy.model.config
    inside = sum(p.numel() for name, p in policy.parameters.items() if p.ndim == 2 and "embed" not in name)
    prompts = spec.prompts if policy.shares_prompts else spec.sequences  # a shared prompt is read once
    past, new = prompts * spec.prompt_tokens, spec.sequences * spec.completion_tokens
    context = past * spec.prompt_tokens / 2 + new * (spec.prompt_tokens + spec.completion_tokens / 2)
    forward = 2 * inside * (past + new) + 2 * config.hidden_size * config.vocab_size * new
    attention = 4 * config.hidden_size * config.num_hidden_layers * context
    return float(3 * (forward + attention))


def matrix_peak(device: str, size: int) -> float:
    """Floating-point operations per second of a bfloat16 product of two square matrices."""
    import torch

    a, b = (torch.randn(size, size, device=device).to(torch.bfloat16) for _ in range(2))

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    best = 0.0
    for turn in range(6):
        wait()
        begin = time.perf_counter()
        for _ in range(4):
            a @ b
        wait()
        if turn > 0:  # the first warms up
            best = max(best, 4 * 2 * size**3 / (time.perf_counter() - begin))
    return best


if __name__ == "__main__":
    sys.exit(main())
