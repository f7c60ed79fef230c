"""Generated grade-school word problems in GSM8K's format, small enough for a language model of 90k parameters.

The model is warm-started on lessons: problems of the same kind, with solutions of correct arithmetic in which some
sentences are misread. Some kinds of sentence are misread in most lessons, so imitation stops improving at a known
accuracy, whatever its budget, and reinforcement learning can improve the reading.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from staleharness.base.streams import stream
from staleharness.language.problem import Problem
from staleharness.language.spec import LanguageSpec
from staleharness.language.task import LanguageTask
from staleharness.language.word_tokenizer import word_tokenizer
from staleharness.task import ENVS

RL_SEED = 1  # of the problems for reinforcement learning; the warm start uses those of seed 0
SIZES = {"train": 2048, "test": 256}
LARGEST = 12  # largest number, given or computed
STEPS = (1, 2, 3)
NAMES = ("Ann", "Ben", "Eva", "Leo", "Mia", "Tom")
THINGS = ("apples", "books", "cards", "coins", "pens", "shells")


class Sentence(NamedTuple):
    """One step of a story: its text, its operation, and the probability that a lesson misreads it."""

    text: str
    sign: str
    misread: float


OPENING = Sentence("{who} has {have} bags of {n} {thing}.", "*", 0.8)
CHANGES = (
    Sentence("{who} buys {n} more.", "+", 0.05),
    Sentence("{who} finds {n} more.", "+", 0.4),
    Sentence("{other} gives {who} {n} more.", "+", 0.4),
    Sentence("{who} sells {n}.", "-", 0.05),
    Sentence("{who} loses {n}.", "-", 0.4),
    Sentence("{who} gives {n} to {other}.", "-", 0.7),
)
ENDINGS = (
    Sentence("{who} shares them among {n} friends. How many {thing} does each friend get?", "/", 0.8),
    Sentence("Each one costs {n} dollars. How many dollars do they cost?", "*", 0.8),
)
MISREAD = {"*": "+", "/": "-", "+": "", "-": ""}  # a misread + or - is skipped


class Step(NamedTuple):
    """A sentence with its number."""

    sentence: Sentence
    n: int


def problem(split: str, index: int, seed: int = 0) -> Problem:
    """Make problem `index` of `split` (`train` or `test`), a pure function of its arguments.

    A hash of the text assigns one question in eight to the test split, so that no question is in both, whatever the
    seed.
    """
    question, start, steps = _drawn(split, index, seed)
    return _solved(question, start, [(step.sentence.sign, step.n) for step in steps])


def lesson(index: int, seed: int = 0) -> Problem:
    """Make training problem `index` with a solution whose arithmetic is correct but some of whose steps are misread."""
    question, start, steps = _drawn("train", index, seed)
    rng = stream(seed, "word-lessons", index)
    while True:
        misread = rng.random(len(steps)) < [step.sentence.misread for step in steps]
        signs = [MISREAD[s.sentence.sign] if m else s.sentence.sign for s, m in zip(steps, misread, strict=True)]
        read = [(sign, step.n) for sign, step in zip(signs, steps, strict=True) if sign]
        if None not in _values(start, read):  # draw again if a misread step has no valid result
            return _solved(question, start, read)


def prompt(problem: Problem) -> str:
    """Return the prompt for a problem; the model answers with the lines of a solution."""
    return problem.question + "\n"


def reckon(a: int, sign: str, b: int) -> int | None:
    """Return the result of an operation, or None if it is not a whole number from 1 to LARGEST."""
    exact, rest = (a // b, a % b) if sign == "/" else ({"+": a + b, "-": a - b, "*": a * b}[sign], 0)
    return exact if rest == 0 and 1 <= exact <= LARGEST else None


def _drawn(split: str, index: int, seed: int) -> tuple[str, int, list[Step]]:
    if split not in ("train", "test"):
        raise ValueError(f"the split {split!r} is neither 'train' nor 'test'")
    rng = stream(seed, "word-problems", index)
    while True:
        story = _story(rng)
        if story and (hashlib.sha256(story[0].encode()).digest()[0] < 32) == (split == "test"):
            return story


def _story(rng: np.random.Generator) -> tuple[str, int, list[Step]] | None:
    """Draw the question, the first number and the steps; None if no number is possible for a step."""
    who, other = rng.choice(NAMES, 2, replace=False)
    thing = rng.choice(THINGS)
    opening, ending = rng.random(2) < (0.3, 0.4)
    changes = rng.integers(len(CHANGES), size=max(0, rng.choice(STEPS) - int(opening) - int(ending)))
    sentences = [
        *[OPENING] * int(opening),
        *(CHANGES[i] for i in changes),
        *[ENDINGS[rng.integers(len(ENDINGS))]] * int(ending),
    ]
    start = have = int(rng.integers(2, 6 if opening else LARGEST))
    text = [] if opening else [f"{who} has {have} {thing}."]
    steps = []
    for sentence in sentences:
        possible = _possible(have, sentence.sign)
        if not possible:
            return None
        n = int(rng.choice(possible))
        text.append(sentence.text.format(who=who, other=other, thing=thing, have=have, n=n))
        steps.append(Step(sentence, n))
        have = reckon(have, sentence.sign, n) or 0
    if not ending:
        text.append(f"How many {thing} does {who} have?")
    return (" ".join(text), start, steps) if steps else None


def _possible(have: int, sign: str) -> list[int]:
    """Return the numbers that the next step of a story may use; for * and /, number and result are at least 2."""
    least = 2 if sign in "*/" else 1
    return [n for n in range(least, LARGEST) if (reckon(have, sign, n) or 0) >= least]


def _values(start: int, steps: Sequence[tuple[str, int]]) -> list[int | None]:
    """Return the first number and the result of each step, which is None from the first impossible step on."""
    values: list[int | None] = [start]
    for sign, n in steps:
        values.append(values[-1] and reckon(values[-1], sign, n))
    return values


def _solved(question: str, start: int, steps: Sequence[tuple[str, int]]) -> Problem:
    """Return the problem with its solution: one line per step, like `3+4=7`, and `#### 7` at the end."""
    values = _values(start, steps)
    lines = [f"{a}{sign}{n}={b}" for a, (sign, n), b in zip(values[:-1], steps, values[1:], strict=True)]
    return Problem(question, "\n".join([*lines, f"#### {values[-1]}"]), str(values[-1]))


@functools.cache
def tokenizer() -> Any:
    """Return the tokenizer: words, and the whole numbers from 0 to LARGEST, as single tokens."""
    texts = (prompt(p) + p.solution for p in (problem("train", index) for index in range(4000)))
    return word_tokenizer(texts, range(LARGEST + 1))


def config() -> Any:
    """Return the configuration of a Qwen2 with two layers and 90k parameters."""
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
        initializer_range=0.05,  # three times as fast as the usual 0.02, which suits widths in the thousands
        pad_token_id=words.pad_token_id,
        eos_token_id=words.eos_token_id,
        bos_token_id=None,
    )


def warm_start_path(progress: Callable[[int, float], None] | None = None) -> Path:
    """Return the folder of the warm-started model and its tokenizer; trained first (30 s) if it is not cached."""
    from staleharness.language.supervised_learning import WarmStart, warm_start

    def example(index: int) -> tuple[str, str]:
        taught = lesson(index)
        return prompt(taught), taught.solution

    settings = WarmStart(steps=400, learning_rate=6e-3)
    return warm_start(example, tokenizer(), config(), settings, [Path(__file__)], progress)


@functools.cache
def problems(split: str) -> tuple[Problem, ...]:
    """Return the problems that reinforcement learning trains on or is tested on, made once per process."""
    return tuple(problem(split, index, seed=RL_SEED) for index in range(SIZES[split]))


@ENVS.register("word-problems")
class WordProblems(LanguageTask):
    """Generated grade-school word problems, and a tiny causal language model warm-started on other such problems."""

    ids: ClassVar[dict[str, str]] = {"word-problems": "generated problems of one to three steps; CPU, no download"}
    prompt_format: ClassVar[str] = "plain"
    presets: ClassVar[dict[str, dict[str, Any]]] = {
        "quick": {
            "steps": 96,
            "prompts": 16,
            "completions": 8,
            "prompt_tokens": 64,
            "completion_tokens": 32,
            "learning_rate": 5e-4,
            "evaluations": 8,
            "evaluation_problems": 256,
        }
    }

    def problems(self, spec: LanguageSpec, split: Literal["train", "test"]) -> list[Problem]:
        return list(problems(split))

    def model(self, spec: LanguageSpec, progress: Callable[[str], None]) -> str:
        if spec.model:
            return spec.model

        def told(step: int, loss: float) -> None:
            if step % 50 == 0:
                progress(f"warm start: step {step}, loss {loss:.2f}")

        return str(warm_start_path(told))
