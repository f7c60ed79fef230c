"""Completions of test problems by the model that a finished run has kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ..training.policy_buffer import PolicyBuffer
from .answer_grading import grade
from .decoder_interface import Request
from .prompt_formatting import pad_left
from .sampler import completion_texts
from .setup import prepare
from .spec import LanguageSpec
from .task import LanguageTask, with_usual_columns


class Answer(NamedTuple):
    """Greedy completion of a test problem."""

    question: str
    gold: str
    completion: str
    correct: bool


def greedy_answers(spec: LanguageSpec, task: LanguageTask, model: Path, count: int) -> list[Answer]:
    """Return the answers of the first `count` test problems of a run by the model in a folder. Raises `UserError`."""
    changes: Mapping[str, Any] = {"model": str(model), "start": "", "warm_start": 0, "versions": "full", "capacity": 1}
    setup = prepare(with_usual_columns(replace(spec, **changes)), task)
    policy, decoder, prompts = setup.policy, setup.sampler.decoder, setup.test
    problems, length = prompts.problems[:count], spec.completion_tokens
    prompt, mask = pad_left(prompts.tokens[: len(problems)], policy.pad, torch.device(spec.device))
    buffer = PolicyBuffer(1)
    buffer.push(policy.snapshot(0, 0))
    versions = np.zeros((len(problems), 1), np.int64)
    decoded = decoder.complete(Request(prompt, mask, versions, length, None, length, setup.sampler.stops), buffer)
    texts = completion_texts(policy, decoded)
    extractor = setup.sampler.extractor
    return [
        Answer(p.question, p.answer, text, grade(text, p.answer, extractor).correct)
        for p, text in zip(problems, texts, strict=True)
    ]
