"""Greedy accuracy on the test problems: one completion each, graded as in training."""

from __future__ import annotations

import numpy as np
import torch

from ..simulator.buffer import PolicyBuffer
from ..simulator.phase import Scores
from ..tokens.minibatch import parts
from .answers import grade
from .decoder import Decoder, Request
from .generation import completion_texts
from .prompt_set import PromptSet, pad_left
from .spec import LanguageSpec

BATCH = 256  # prompts decoded together


def evaluate(
    spec: LanguageSpec,
    decoder: Decoder,
    prompts: PromptSet,
    extractor: str,
    stops: tuple[str, ...],
    phase: int,
) -> Scores:
    """Scores of the learner as it stands, `deterministic` only: greedy decoding has no noise."""
    policy, count = decoder.policy, len(prompts.problems)
    rows = np.arange(min(spec.evaluation_problems or count, count))
    buffer = PolicyBuffer(1)
    buffer.push(policy.snapshot(phase, 0))
    right: list[float] = []
    lengths: list[int] = []
    length = spec.completion_tokens
    counts = {"unparsed": 0, "truncated": 0}
    for part in parts(rows, BATCH):
        prompt, mask = pad_left([prompts.tokens[i] for i in part], policy.pad, torch.device(spec.device))
        versions = np.full((len(part), 1), phase, dtype=np.int64)
        decoded = decoder.complete(Request(prompt, mask, versions, length, None, length, stops), buffer)
        texts = completion_texts(policy, decoded)
        verdicts = [grade(t, prompts.problems[i].answer, extractor) for t, i in zip(texts, part, strict=True)]
        right += [float(v.correct) for v in verdicts]
        lengths += [int(n) for n in decoded.mask.sum(1).tolist()]
        counts["unparsed"] += sum(not v.parsed for v in verdicts)
        counts["truncated"] += int((~decoded.ended).sum())
    return Scores({"deterministic": right}, {"deterministic": lengths}, sum(lengths), counts)
