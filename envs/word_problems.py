"""Generated grade-school word problems in GSM8K's format, small enough for a language model of 100k parameters."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from staleharness.language.problem import Problem
from staleharness.language.task import LanguageTask
from staleharness.language.word_tokens import word_tokenizer
from staleharness.spec import LanguageSpec
from staleharness.streams import stream
from staleharness.task import ENVS

LARGEST = 20  # no number, given or computed, is larger
STEPS = {1: 0.25, 2: 0.4, 3: 0.35}
RL_SEED = 1  # of the problems that reinforcement learning sees; the warm start has seen those of seed 0
SIZES = {"train": 4096, "test": 256}
NAMES = ("Ann", "Ben", "Eva", "Leo", "Mia", "Tom")
THINGS = ("apples", "books", "cards", "coins", "pens", "shells")
GAINS = ("{who} buys {n} more.", "{who} finds {n} more.", "{other} gives {who} {n} more.")
LOSSES = ("{who} loses {n}.", "{who} sells {n}.", "{who} gives {n} to {other}.")


def problem(split: str, index: int, seed: int = 0) -> Problem:
    """Problem `index` of `split` (`train` or `test`), a pure function of its arguments.

    One question in eight belongs to the test split, by a hash of its text: none is in both, whatever the seed.
    """
    rng = stream(seed, "word-problems", index)
    while True:
        drawn = draw(rng)
        if (hashlib.sha256(drawn.question.encode()).digest()[0] < 32) == (split == "test"):
            return drawn


def draw(rng: np.random.Generator) -> Problem:
    """One problem: something to begin with, gains and losses, a question; a line of the solution per step."""
    who, other = rng.choice(NAMES, 2, replace=False)
    thing = rng.choice(THINGS)
    steps = int(rng.choice(list(STEPS), p=list(STEPS.values())))
    lines: list[str] = []

    def reckon(a: int, sign: str, b: int, result: int) -> int:
        lines.append(f"{a}{sign}{b}={result}")
        return result

    ends = rng.choice(("plain", "share", "cost"), p=(0.6, 0.2, 0.2)) if steps > 1 else "plain"
    changes = steps - (ends != "plain")
    if rng.random() < 0.4:
        bags, each = (int(n) for n in rng.integers(2, 6, 2))
        while bags * each > LARGEST:
            bags, each = (int(n) for n in rng.integers(2, 6, 2))
        text = [f"{who} has {bags} bags of {each} {thing}."]
        have = reckon(bags, "*", each, bags * each)
        changes -= 1
    else:
        have = int(rng.integers(2, LARGEST - 1))
        text = [f"{who} has {have} {thing}."]
    for _ in range(changes):
        gain = have <= 2 or (have < LARGEST and rng.random() < 0.5)
        n = int(rng.integers(1, LARGEST - have + 1)) if gain else int(rng.integers(1, have))
        text.append(str(rng.choice(GAINS if gain else LOSSES)).format(who=who, other=other, n=n))
        have = reckon(have, "+" if gain else "-", n, have + n if gain else have - n)
    divisors = [d for d in range(2, 6) if have % d == 0]
    prices = [p for p in range(2, 6) if have * p <= LARGEST]
    if ends == "share" and divisors:
        n = int(rng.choice(divisors))
        text.append(f"{who} shares them among {n} friends. How many {thing} does each friend get?")
        have = reckon(have, "/", n, have // n)
    elif ends == "cost" and prices:
        n = int(rng.choice(prices))
        text.append(f"Each one costs {n} dollars. How many dollars do they cost?")
        have = reckon(have, "*", n, have * n)
    else:
        text.append(f"How many {thing} does {who} have?")
    if not lines:  # nothing happened and nothing was asked: once more
        return draw(rng)
    return Problem(" ".join(text), "\n".join([*lines, f"#### {have}"]), str(have))


def prompt(problem: Problem) -> str:
    """What the model is given; it answers with the lines of a solution."""
    return problem.question + "\n"


@functools.cache
def tokenizer() -> Any:
    """Words and whole numbers from 0 to LARGEST as single tokens, all that problems are made of."""
    texts = (prompt(p) + p.solution for p in (problem("train", index) for index in range(4000)))
    return word_tokenizer(texts, range(LARGEST + 1))


def config() -> Any:
    """A Qwen2 of two layers and 90k parameters."""
    from transformers import Qwen2Config

    words = tokenizer()
    return Qwen2Config(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=128,
        tie_word_embeddings=True,
        pad_token_id=words.pad_token_id,
        eos_token_id=words.eos_token_id,
        bos_token_id=None,
    )


def warm_start_path(progress: Callable[[int, float], None] | None = None) -> Path:
    """The folder of the warm-started model and its tokenizer; trains them (30 s) when they are not cached."""
    from staleharness.language.warm_start import WarmStart, warm_start

    def example(index: int) -> tuple[str, str]:
        drawn = problem("train", index)
        return prompt(drawn), drawn.solution

    return warm_start(example, tokenizer(), config(), WarmStart(steps=350), [Path(__file__)], progress)


@ENVS.register("word-problems")
class WordProblems(LanguageTask):
    """Generated grade-school word problems, and a tiny causal language model that was warmed up on others of them."""

    ids: ClassVar[dict[str, str]] = {
        "word-problems": "generated problems of one to three steps; CPU, no download"
    }
    prompt_format: ClassVar[str] = "plain"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "quick": {
            "steps": 128, "prompts": 16, "completions": 8, "prompt_tokens": 64, "completion_tokens": 32,
            "learning_rate": 2e-4, "evaluations": 8, "evaluation_problems": 256,
        },
    }  # fmt: skip

    def problems(self, spec: LanguageSpec, split: Literal["train", "test"]) -> list[Problem]:
        return [problem(split, index, seed=RL_SEED) for index in range(SIZES[split])]

    def model(self, spec: LanguageSpec, progress: Callable[[str], None]) -> str:
        if spec.model:
            return spec.model

        def told(step: int, loss: float) -> None:
            if step % 50 == 0:
                progress(f"warm start: step {step}, loss {loss:.2f}")

        return str(warm_start_path(told))
