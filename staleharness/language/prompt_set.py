"""The problems of one split as prompts in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError, shorten
from .model.causal_lm import CausalLM
from .problem import Problem
from .prompts import PromptFormat, render
from .spec import LanguageSpec


@dataclass(frozen=True)
class PromptSet:
    """Problems with their prompts as tokens, in the task's order."""

    problems: list[Problem]
    tokens: list[list[int]]
    dropped: int  # problems whose prompt is longer than allowed


def prompt_set(
    problems: list[Problem],
    form: PromptFormat,
    shots: Sequence[Problem],
    policy: CausalLM,
    spec: LanguageSpec,
    split: str,
) -> PromptSet:
    """The prompts of `problems`, behind the worked examples `shots`; as one turn of a chat where the run asks for it.

    Raises `UserError` where prompts are longer than `prompt_tokens` and may not be dropped, or empty."""
    texts = [render(form, problem.question, shots) for problem in problems]
    if spec.chat_template:
        texts = [_as_chat(policy.tokenizer, text, spec) for text in texts]
    tokens = policy.tokens(texts, special=not spec.chat_template)  # a template has written them already
    if not all(tokens):
        maker = "chat template" if spec.chat_template else "tokenizer"
        raise UserError(f"the {maker} of MODEL={spec.model} makes a prompt of no tokens")
    fits = [len(ids) <= spec.prompt_tokens for ids in tokens]
    if not all(fits):
        longest = max(map(len, tokens))
        if spec.long_prompts == "refuse" or not any(fits):
            raise UserError(
                f"{len(fits) - sum(fits)} of {len(fits)} {split} prompts are longer than "
                f"prompt_tokens={spec.prompt_tokens} (the longest has {longest}); raise it, or SET=long_prompts=drop"
            )
    kept = [i for i, ok in enumerate(fits) if ok]
    return PromptSet([problems[i] for i in kept], [tokens[i] for i in kept], len(fits) - len(kept))


def closing_token(policy: CausalLM) -> int:
    """The end token that a completion of these prompts should end with: of several, the one that the chat template
    writes behind a model's turn; without a template, the first."""
    if not policy.spec.chat_template:
        return policy.end[0]
    turns = [{"role": "user", "content": "asked"}, {"role": "assistant", "content": "said"}]
    behind = _rendered(policy.tokenizer, turns, policy.spec).rpartition("said")[2]
    (tokens,) = policy.tokens([behind], special=False)
    return next((token for token in tokens if token in policy.end), policy.end[0])


def _as_chat(tokenizer: Any, text: str, spec: LanguageSpec) -> str:
    return _rendered(tokenizer, [{"role": "user", "content": text}], spec)


def _rendered(tokenizer: Any, turns: list[dict[str, str]], spec: LanguageSpec) -> str:
    """Turns of a conversation as text, up to the model's next turn where it is the model's."""
    if tokenizer.chat_template is None:
        raise UserError(f"MODEL={spec.model} has no chat template; SET=chat_template=false")
    asked = turns[-1]["role"] == "user"
    try:
        return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=asked))
    except Exception as error:  # of the template, which is a program of whoever made the model, in a sandbox
        why = " ".join(str(error).split())
        what = "no single turn of a user" if len(turns) == 1 else "no answer to a user"
        raise UserError(
            f"the chat template of MODEL={spec.model} takes {what}: {shorten(why, 160)}; SET=chat_template=false"
        ) from error


def pad_left(tokens: list[list[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(ids, mask), both int64 [B, P] with P the longest."""
    width = max(map(len, tokens))
    ids = np.full((len(tokens), width), pad, dtype=np.int64)
    mask = np.zeros((len(tokens), width), dtype=np.int64)
    for i, row in enumerate(tokens):
        ids[i, width - len(row) :], mask[i, width - len(row) :] = row, 1
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
