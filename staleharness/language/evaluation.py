"""Accuracy on the test problems, graded as in training, of one greedy completion each and of sampled ones."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..base.streams import stream
from ..tokens.token_minibatch import parts
from ..training.phase_record import Scores
from ..training.policy_buffer import PolicyBuffer
from .answer_grading import grade
from .decoder_interface import Decoder, Request
from .prompt_formatting import PromptSet, pad_left
from .sampler import completion_texts
from .spec import LanguageSpec

BATCH = 256  # completions decoded together
SEED = 20_240_603  # the same for every run: all policies are sampled with the same noise


def evaluate(
    spec: LanguageSpec, decoder: Decoder, prompts: PromptSet, extractor: str, stops: tuple[str, ...], phase: int
) -> Scores:
    """Return the learner's scores: `deterministic`, 1 or 0 for each problem's greedy completion; with
    `evaluation_samples`, `sampled`, the share of each problem's samples that is right. Counts greedy completions that
    are unparsed, truncated, or right and not truncated."""
    policy, count = decoder.policy, len(prompts.problems)
    rows = np.arange(min(spec.evaluation_problems or count, count))
    buffer = PolicyBuffer(1)
    buffer.push(policy.snapshot(phase, 0))
    length = spec.completion_tokens

    def complete(rows: NDArray[np.int64], noise: Tensor | None) -> tuple[list[float], list[int], dict[str, int]]:
        """Return (1 or 0, tokens) of a completion for each row's problem, and counts."""
        right: list[float] = []
        lengths: list[int] = []
        counts = {"unparsed": 0, "truncated": 0, "complete_right": 0}
        for part in parts(np.arange(len(rows)), BATCH):
            problems = rows[part]
            prompt, mask = pad_left([prompts.tokens[i] for i in problems], policy.pad, torch.device(spec.device))
            versions = np.full((len(part), 1), phase, dtype=np.int64)
            uniform = None if noise is None else noise[part].to(policy.device)
            decoded = decoder.complete(Request(prompt, mask, versions, length, uniform, length, stops), buffer)
            texts = completion_texts(policy, decoded)
            grades = [grade(t, prompts.problems[i].answer, extractor) for t, i in zip(texts, problems, strict=True)]
            right += [float(g.correct) for g in grades]
            lengths += [int(n) for n in decoded.mask.sum(1).tolist()]
            counts["unparsed"] += sum(not g.has_answer for g in grades)
            counts["truncated"] += int((~decoded.ended).sum())
            ended = decoded.ended.tolist()
            counts["complete_right"] += sum(g.correct and end for g, end in zip(grades, ended, strict=True))
        return right, lengths, counts

    right, lengths, counts = complete(rows, None)
    scores = Scores({"deterministic": right}, {"deterministic": lengths}, sum(lengths), counts)
    if not (each := spec.evaluation_samples):
        return scores
    streams = (stream(SEED, "evaluation", problem, sample) for problem in rows.tolist() for sample in range(each))
    noise = np.stack([rng.random(length, np.float32) for rng in streams])
    right, lengths, _ = complete(rows.repeat(each), torch.from_numpy(noise))
    shares = np.reshape(right, (-1, each)).mean(1).tolist()
    return Scores(
        {"sampled": shares, **scores.returns},
        {"sampled": lengths, **scores.lengths},
        scores.steps + sum(lengths),
        counts,
    )
