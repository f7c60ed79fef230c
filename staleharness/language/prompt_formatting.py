"""Prompts: published formats with their stops and extractors, and the prompts of a split as tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.parsing import read_toml
from ..errors import UserError, nearest, one_line, shorten
from .problem import Problem

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from .model.causal_lm_policy import CausalLM
    from .spec import LanguageSpec


@dataclass(frozen=True)
class PromptFormat:
    """One published prompt.

    template: the prompt; `{question}` is replaced literally, and no other brace is special.
    stops: strings that end a completion, beside the model's own end-of-sequence token.
    extractor: name of its rule in `answer_grading.EXTRACTORS`.
    shots: number of worked examples that it is defined with.
    """

    name: str
    template: str
    stops: tuple[str, ...]
    extractor: str
    source: str
    shots: int = 0


def render(format: PromptFormat, question: str, shots: Sequence[Problem] = ()) -> str:
    """Return the prompt for `question`, after the worked examples `shots` (the first rows of the training split, which
    are not trained on).

    Each example is its own prompt, a space or the template's own line break, its solution, and an empty line.
    Raises `UserError` for fewer shots than the format is defined with.
    """
    if len(shots) < format.shots:
        raise UserError(f"prompt {format.name} needs {format.shots} worked examples, and {len(shots)} were given")
    return "".join(_example(format, shot) for shot in shots) + _fill(format, question)


def find_prompt(name: str) -> PromptFormat:
    """Return the format called `name`. Raises `UserError` with the nearest known name."""
    if name not in PROMPTS:
        raise UserError(f"no prompt is called {shorten(name)!r}; {nearest(name, PROMPTS)}")
    return PROMPTS[name]


def _fill(format: PromptFormat, question: str) -> str:
    return format.template.replace("{question}", question)  # not str.format: a question may hold braces


def _example(format: PromptFormat, shot: Problem) -> str:
    prompt = _fill(format, shot.question)
    return prompt + ("" if prompt[-1:].isspace() else " ") + shot.solution + "\n\n"


PROMPTS: dict[str, PromptFormat] = {
    name: PromptFormat(name, **{**settings, "stops": tuple(settings["stops"])})
    for name, settings in read_toml(Path(__file__).with_name("prompt_formats.toml")).items()
}


@dataclass(frozen=True)
class PromptSet:
    """Problems with their prompts as tokens, in the task's order."""

    problems: list[Problem]
    tokens: list[list[int]]
    dropped: int  # problems whose prompt is too long


def tokenise_prompts(
    problems: list[Problem],
    form: PromptFormat,
    shots: Sequence[Problem],
    policy: CausalLM,
    spec: LanguageSpec,
    split: str,
) -> PromptSet:
    """Return the prompts of `problems` after the worked examples `shots`, as one turn of a chat with `chat_template`.

    Raises `UserError` for empty prompts, and for prompts longer than `prompt_tokens` that may not be dropped.
    """
    texts = [render(form, problem.question, shots) for problem in problems]
    if spec.chat_template:
        _check_chat(policy.tokenizer, spec)
        texts = [_render_chat(policy.tokenizer, [{"role": "user", "content": text}], spec) for text in texts]
    tokens = policy.tokens(texts, special=not spec.chat_template)  # a template has them already
    if not all(tokens):
        maker = "chat template" if spec.chat_template else "tokenizer"
        raise UserError(f"the {maker} of MODEL={spec.model} makes a prompt of no tokens")
    fits = [len(ids) <= spec.prompt_tokens for ids in tokens]
    too_long = fits.count(False)
    if too_long and (spec.long_prompts == "refuse" or not any(fits)):
        raise UserError(
            f"{too_long} of {len(fits)} {split} prompts are longer than prompt_tokens={spec.prompt_tokens} "
            f"(the longest has {max(map(len, tokens))}); raise it, or SET=long_prompts=drop"
        )
    return PromptSet(list(compress(problems, fits)), list(compress(tokens, fits)), too_long)


def closing_token(policy: CausalLM) -> int:
    """Return the token that should end a completion: of several end tokens, the one that the chat template writes
    after a model's turn; without a template, the first."""
    if not policy.spec.chat_template:
        return policy.end[0]
    turns = [{"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}]
    suffix = _render_chat(policy.tokenizer, turns, policy.spec).rpartition("answer")[2]
    (tokens,) = policy.tokens([suffix], special=False)
    return next((token for token in tokens if token in policy.end), policy.end[0])


def _check_chat(tokenizer: Any, spec: LanguageSpec) -> None:
    """Raise `UserError` for a chat template that makes the same prompt of all questions."""
    first, second = ([{"role": "user", "content": text}] for text in ("one question", "another question"))
    if _render_chat(tokenizer, first, spec) == _render_chat(tokenizer, second, spec):
        raise UserError(f"the chat template of MODEL={spec.model} leaves out what a user says; SET=chat_template=false")


def _render_chat(tokenizer: Any, turns: list[dict[str, str]], spec: LanguageSpec) -> str:
    """Return turns of a conversation as text, with the beginning of the model's turn after a user's."""
    if tokenizer.chat_template is None:
        raise UserError(f"MODEL={spec.model} has no chat template; SET=chat_template=false")
    prompt = turns[-1]["role"] == "user"
    try:
        text = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=prompt))
        text.encode()  # raises for half a surrogate pair, which no tokenizer takes
        return text
    except Exception as error:  # a template is a foreign program, in a sandbox
        reason = one_line(error) or type(error).__name__
        problem = "no single turn of a user" if len(turns) == 1 else "no answer to a user"
        raise UserError(
            f"the chat template of MODEL={spec.model} takes {problem}: {shorten(reason, 160)}; SET=chat_template=false"
        ) from error


def pad_left(tokens: list[list[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return (ids, mask), both int64 [B, P] with P the longest."""
    import torch

    width = max(map(len, tokens))
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in tokens])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in tokens])
    return ids.to(device), mask.to(device)
