"""GRPO training steps per second, ours against TRL's GRPOTrainer: the same tiny model and prompts on one CPU thread.

    python benchmarks/trl_grpo.py [--quick] [--hidden 256 --layers 4 | --smollm2] [--learner torch]

A training step is a generation round (16 prompts x 8 completions of at most 32 tokens, sampled at temperature 1), its
grading, and one optimiser step of clipped policy gradient with the same learning rate. Both start every block from
the same warm-started word-problems model, see the same prompts in the same order, and run in a fresh process each,
in turns (ours first, then theirs first, ...); the first steps of a block are not counted. Neither evaluates, logs or
saves.

TRL is set up fairly: no reference model (beta = 0), one step per generation so that it never recomputes
log-probabilities (ours does score its completions once: that is what staleness is measured with), no gradient
checkpointing, float32, no data-loader workers, transformers' generation with its KV cache; everything else as TRL
ships it. It lives in an environment of its own under the cache folder ($STALEHARNESS_CACHE), made at the first call
(minutes) with the user's pip settings and the pins of constraints/.

With `--hidden` and `--layers` the model is a Qwen2 of that size with random weights and the same tokenizer, whose
completions run to the limit: the larger, the less of the time is overhead. `--smollm2` takes SmolLM2-135M and 4 x 4
completions. Ours learns by SET=learner=native, with which decoder=native comes; `--learner torch` is the default of a
run, with decoder=packed_weights for the larger models, as MODEL= has it.

Printed are steps per second and CPU seconds per step of both, and the ratio of speeds by wall and by processor time:
the median over pairs of neighbouring blocks, with the smallest and the largest. Limit of native learners, by processor
time: 2.5; 2 with the larger models.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench_table import show

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]
QUIET = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}

TRL = "1.16.0"
TOKENS = 32
LEARNING_RATE = 2e-4
LEAST, LEAST_LARGE = 2.5, 2.0


class Size(NamedTuple):
    """Model, prompts of a step and completions of each, the same for both sides."""

    prompts: int = 16
    completions: int = 8
    hidden: int = 0  # of a model with random weights; 0: the one that comes
    layers: int = 0
    smollm2: bool = False
    learner: str = "native"

    def __str__(self) -> str:
        learner = "" if self.learner == "native" else f", learner={self.learner}"
        random = f"hidden {self.hidden}, {self.layers} layers, random weights"
        return ("SmolLM2-135M" if self.smollm2 else random if self.hidden else "the warm-started model") + learner

    @property
    def is_default(self) -> bool:
        return not (self.smollm2 or self.hidden)


def staleharness_step(task: dict[str, Any]) -> dict[str, Any]:
    """Blocks of `Simulation.advance`: what a run of `make sweep ENV=word-problems K=1` does."""
    import torch

    from staleharness.base.system_info import keep_freed_memory
    from staleharness.training.loop import simulation_of

    keep_freed_memory()  # as every run of ours does
    torch.set_deterministic_debug_mode("error")
    setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # noqa: B010
    size = Size(*task["size"])
    spec = spec_of(task["steps"] + 1, size, task["model"])  # evaluated after the step that is not taken
    simulation = simulation_of(spec)
    tokens, rewards = [], []

    def step() -> None:
        record = simulation.advance()
        tokens.append(record.metrics["rollout_length"])
        rewards.append(record.metrics["reward"])

    seconds = time_steps(step, task)
    return {**seconds, "tokens": tokens, "rewards": rewards, "versions": f"torch {torch.__version__}"}


def spec_of(steps: int, size: Size, model: str = "") -> Any:
    from staleharness.task import find_env

    _, family = find_env("word-problems")
    engines = {"learner": "native", "decoder": "native"}
    if size.learner == "torch":
        engines = {} if size.is_default else {"decoder": "packed_weights"}
    return family.settings.from_dict(
        {
            **engines,
            "env": "word-problems",
            "model": model,
            "algorithm": "ppo_clip",
            "capacity": 1,
            "steps": steps,
            "prompts": size.prompts,
            "completions": size.completions,
            "completion_tokens": TOKENS,
            "prompt_tokens": 128,
            "learning_rate": LEARNING_RATE,
            "evaluations": 1,
            "evaluation_problems": 1,
        }
    )


def time_steps(step: Callable[[], None], task: dict[str, Any]) -> dict[str, float]:
    """Steps per second and CPU seconds per step behind the warm-up."""
    for _ in range(task["warm"]):
        step()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count := task["steps"] - task["warm"]):
        step()
    return {"rate": count / (time.perf_counter() - wall), "cpu": (time.process_time() - cpu) / count}


def trl(task: dict[str, Any]) -> dict[str, Any]:
    """The same steps by GRPOTrainer, timed at the ends of its steps."""
    import re

    import datasets
    import torch
    import transformers
    from trl import GRPOConfig, GRPOTrainer

    folder = task["model"]
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    rewards: list[float] = []
    tokens: list[float] = []
    clock: list[tuple[float, float]] = []

    def reward(completions: list[str], completion_ids: list[list[int]], answer: list[str], **_: Any) -> list[float]:
        said = [re.search(r"#### (-?\d+)", text) for text in completions]
        right = [float(s is not None and s[1] == a) for s, a in zip(said, answer, strict=True)]
        rewards.append(statistics.mean(right))
        tokens.append(statistics.mean(map(len, completion_ids)))
        return right

    class Clock(transformers.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, *given: Any, **named: Any) -> None:
            clock.append((time.perf_counter(), time.process_time()))

    config = GRPOConfig(
        output_dir=task["scratch"],
        max_steps=task["steps"],
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        per_device_train_batch_size=len(task["rows"]) // task["steps"] * task["size"][1],
        num_generations=task["size"][1],
        max_completion_length=TOKENS,
        num_iterations=1,
        steps_per_generation=1,
        beta=0.0,
        epsilon=0.2,
        temperature=1.0,
        use_vllm=False,
        bf16=False,
        fp16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        dataloader_num_workers=0,
        dataloader_pin_memory=False,
        shuffle_dataset=False,
        report_to="none",
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        disable_tqdm=True,
        seed=0,
    )
    trainer = GRPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        reward_funcs=reward,
        args=config,
        train_dataset=datasets.Dataset.from_list(task["rows"]),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.train()
    (wall, cpu), (end, cpu_end) = clock[task["warm"] - 1], clock[-1]
    count = len(clock) - task["warm"]
    return {
        "rate": count / (end - wall),
        "cpu": (cpu_end - cpu) / count,
        "tokens": tokens,
        "rewards": rewards,
        "versions": f"torch {torch.__version__}, transformers {transformers.__version__}",
    }


def random_model(folder: Path, hidden: int, layers: int) -> None:
    """Put a model of that size, heads of 32 numbers, in the place of the one in `folder`."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(folder)
    changes = {"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers}
    heads = {"num_attention_heads": hidden // 32, "num_key_value_heads": hidden // 32}
    fresh = type(config)(
        **{**{k: v for k, v in config.to_dict().items() if k not in ("layer_types", "head_dim")}, **changes, **heads}
    )
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(fresh, dtype=torch.float32).save_pretrained(folder)


def task_of(warm: int, steps: int, scratch: Path, size: Size) -> dict[str, Any]:
    """Return the inputs of both sides: the model's folder, and the prompts in the order of our generator."""
    from staleharness.base.streams import stream
    from staleharness.language.prompt_formatting import find_prompt, render
    from staleharness.task import find_env

    spec = spec_of(steps, size)
    task: Any = find_env("word-problems")[1]()
    if size.smollm2:
        source, _ = task.weights(spec_of(steps, size, "smollm2"), print)
        model = shutil.copytree(source, scratch / "model")
    else:
        model = shutil.copytree(task.model(spec, lambda line: print(line, flush=True)), scratch / "model")
    if size.hidden:
        random_model(Path(model), size.hidden, size.layers)
    problems = task.problems(spec, "train")
    form = find_prompt(task.prompt_format)
    needed = steps * size.prompts
    if needed > len(problems):
        sys.exit(f"{needed} prompts are needed, and there are {len(problems)}")
    order = stream(spec.seed, "env", 0).permutation(len(problems))[:needed]
    rows = [{"prompt": render(form, problems[i].question, []), "answer": problems[i].answer} for i in order.tolist()]
    return {"model": str(model), "rows": rows, "warm": warm, "steps": steps, "scratch": str(scratch), "size": size}


def compare(pairs: int, warm: int, steps: int, size: Size) -> None:
    from peers import InstallError, block, environment, spread

    try:
        python = environment("trl", TRL)
    except InstallError as problem:
        print(f"without TRL: {problem}", flush=True)
        return
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "trl": []}
    sides = {"ours": sys.executable, "trl": str(python)}
    with tempfile.TemporaryDirectory() as folder:
        task = task_of(warm, steps, Path(folder) / "scratch", size)
        file = Path(folder) / "task.json"
        file.write_text(json.dumps(task))
        print((__doc__ or "").split("\n\n", 1)[0])
        print(
            f"{size}; {size.prompts} prompts x {size.completions} completions, at most {TOKENS} new tokens, "
            f"lr {LEARNING_RATE:g}, one thread; {pairs} pairs of blocks, each {warm} + {steps - warm} steps in a fresh "
            f"process, "
            f"{os.cpu_count()} cores at load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        for pair in range(pairs):
            order = list(sides) if pair % 2 == 0 else list(sides)[::-1]
            for side in order:
                words = ["--side", side, "--task", str(file)]
                found[side].append(block(sides[side], __file__, words, **QUIET))
            rates = {side: blocks[-1]["rate"] for side, blocks in found.items()}
            print(f"  pair {pair + 1}: ours {rates['ours']:.2f}, TRL {rates['trl']:.2f} steps/s", flush=True)
    names = {"ours": "staleharness", "trl": f"TRL {TRL}"}
    print(
        f"Python {platform.python_version()}; " + "; ".join(f"{names[s]}: {b[0]['versions']}" for s, b in found.items())
    )
    print(f"{'':<14}{'steps/s':>22}{'CPU s/step':>22}{'tokens/completion':>19}{'reward':>8}")
    for side, blocks in found.items():
        columns = [spread([b[key] for b in blocks]) for key in ("rate", "cpu")]
        tokens, reward = (statistics.mean(x for b in blocks for x in b[k][warm:]) for k in ("tokens", "rewards"))
        print(f"{names[side]:<14}{columns[0]:>22}{columns[1]:>22}{tokens:>19.1f}{reward:>8.2f}")
    show_rows(size, found["ours"], found["trl"])


def show_rows(size: Size, ours: Sequence[dict[str, Any]], trl: Sequence[dict[str, Any]]) -> None:
    """Show the ratios of speeds by both clocks; the limit is of native learners, by processor time."""
    both, least = list(zip(ours, trl, strict=True)), LEAST if size.is_default else LEAST_LARGE
    limit = f">= {least:g}" if size.learner == "native" else ""
    show(f"GRPO / TRL, {size}, wall time", [a["rate"] / b["rate"] for a, b in both])
    show(f"GRPO / TRL, {size}, processor time", [b["cpu"] / a["cpu"] for a, b in both], limit)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 pairs of short blocks instead of 7")
    parser.add_argument("--hidden", type=int, help="width of a model with random weights; a multiple of 32")
    parser.add_argument("--layers", type=int, default=4, help="its layers")
    parser.add_argument("--smollm2", action="store_true", help="SmolLM2-135M, 4 x 4 completions")
    parser.add_argument("--learner", choices=("native", "torch"), default="native", help="ours")
    parser.add_argument("--pairs", type=int, help="pairs of blocks")
    parser.add_argument("--side", choices=("ours", "trl"), help=argparse.SUPPRESS)
    parser.add_argument("--task", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    if arguments.side is None:
        size = Size(hidden=arguments.hidden, layers=arguments.layers) if arguments.hidden else Size()
        size = size._replace(learner=arguments.learner)
        pairs, warm, steps = (2, 2, 6) if arguments.quick else (7, 4, 20)
        if not size.is_default:
            pairs, steps = min(pairs, 3), min(steps, 8)
        if arguments.smollm2:
            size, pairs, warm, steps = Size(4, 4, smollm2=True, learner=arguments.learner), min(pairs, 3), 1, 4
        compare(arguments.pairs or pairs, warm, steps, size)
        return
    task = json.loads(arguments.task.read_text())
    print(json.dumps({"ours": staleharness_step, "trl": trl}[arguments.side](task)))


if __name__ == "__main__":
    main()
