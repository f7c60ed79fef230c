"""How a question is put to a model, where its answer ends, and which rule reads the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UserError, nearest, shorten
from .answers import grade
from .problem import Problem


@dataclass(frozen=True)
class PromptFormat:
    """One published way to ask.

    template: the prompt; `{question}` is replaced literally, and no other brace means anything.
    stops: strings that end a completion, beside the model's own end-of-sequence token.
    extractor: the rule in `answers.EXTRACTORS` that belongs to it.
    shots: how many worked examples it is defined with.
    """

    name: str
    template: str
    stops: tuple[str, ...]
    extractor: str
    source: str
    shots: int = 0


def render(format: PromptFormat, question: str, shots: Sequence[Problem] = ()) -> str:
    """The prompt for `question`, behind all the worked examples in `shots` (the first rows of the training split).

    Each example is its own prompt, a space or the template's own line break, its solution, and an empty line.
    Raises `UserError` for fewer shots than the format is defined with, and for a worked example that the format's own
    extractor would not accept: the model would be shown what it is not paid for.
    """
    if len(shots) < format.shots:
        raise UserError(f"prompt {format.name} needs {format.shots} worked examples, and {len(shots)} were given")
    for shot in shots:
        if not grade(shot.solution, shot.answer, format.extractor).correct:
            raise UserError(
                f"prompt {format.name} cannot show worked examples: its extractor {format.extractor} does not read "
                f"the solution of {shorten(shot.question)!r}; use lm_eval or verl"
            )
    return "".join(_example(format, shot) for shot in shots) + _fill(format, question)


def find_prompt(name: str) -> PromptFormat:
    """The format called `name`. Raises `UserError` with the nearest known name."""
    if name not in PROMPTS:
        raise UserError(f"no prompt is called {shorten(name)!r}; {nearest(name, PROMPTS)}")
    return PROMPTS[name]


def _fill(format: PromptFormat, question: str) -> str:
    return format.template.replace("{question}", question)  # not str.format: a question may hold braces


def _example(format: PromptFormat, shot: Problem) -> str:
    prompt = _fill(format, shot.question)
    return prompt + ("" if prompt[-1:].isspace() else " ") + shot.solution + "\n\n"


_LM_EVAL = "lm-evaluation-harness, tasks/gsm8k/gsm8k.yaml, version 3"
_LM_EVAL_STOPS = ("Question:", "</s>", "<|im_end|>")

# The recommended default is verl. Its stops and TBA's are ours: those recipes rely on the end-of-sequence token, and
# a base model that has answered goes on to invent the next problem, whose answer the rule would then read.
PROMPTS: dict[str, PromptFormat] = {
    format.name: format
    for format in (
        PromptFormat(
            "verl",
            '{question} Let\'s think step by step and output the final answer after "####".',
            stops=("Question:", "<|endoftext|>"),
            extractor="verl_strict",
            source="verl, examples/data_preprocess/gsm8k.py",
        ),
        PromptFormat(
            "areal",
            "{question}\nPlease put your final answer within \\boxed{}.",
            stops=(),
            extractor="boxed",
            source="AReaL, GSM8K recipes",
        ),
        PromptFormat(
            "lm_eval",
            "Question: {question}\nAnswer:",
            stops=_LM_EVAL_STOPS,
            extractor="lm_eval_strict",
            source=_LM_EVAL,
        ),
        PromptFormat(
            "lm_eval_5shot",
            "Question: {question}\nAnswer:",
            stops=_LM_EVAL_STOPS,
            extractor="lm_eval_strict",
            source=f"{_LM_EVAL}; there the examples are drawn at random",
            shots=5,
        ),
        PromptFormat(
            "tba",
            "[MATH TASK] Problem:\n{question}\n\nSolution:\n",
            stops=("[MATH TASK]",),
            extractor="last_number",
            source="TBA, src/gsm8k_utils.py",
        ),
        PromptFormat(
            "plain",
            "{question}\n",
            stops=(),
            extractor="strict",
            source="ours, for tiny models trained on nothing else",
        ),
    )
}
