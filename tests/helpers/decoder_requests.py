"""Prompts, noise, versions that differ clearly, and requests to a decoder made of them."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from staleharness.language.decoder_interface import Request
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.prompt_formatting import pad_left
from staleharness.training.policy_buffer import PolicyBuffer

LENGTH = 10
PROMPTS = [[5, 7, 9], [6, 8, 10, 12, 5, 9, 7], [11], [4, 4, 5, 6], [9, 8], [13, 5, 5, 6, 7, 8], [5, 6], [7, 7, 7]]


def noise(rows: int = 8, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((rows, LENGTH), np.float32))


def versions_of(policy: CausalLM, count: int) -> PolicyBuffer:
    """A buffer of `count` versions that differ clearly."""
    buffer = PolicyBuffer(count)
    rng = torch.Generator().manual_seed(1)
    initial = [p.detach().clone() for p in policy.parameters.values()]
    for v in range(count):
        with torch.no_grad():
            for p, start in zip(policy.parameters.values(), initial, strict=True):
                p.copy_(start + 0.1 * v * torch.randn(start.shape, generator=rng))
        buffer.push(policy.snapshot(v, 10 * v))
    return buffer


def request(
    policy: CausalLM,
    versions: NDArray[np.int64],
    rows: slice = slice(None),
    uniform: Tensor | None = None,
    segment_length: int = LENGTH,
    stops: tuple[str, ...] = (),
) -> Request:
    prompt, mask = pad_left(PROMPTS[rows], policy.pad, policy.device)
    return Request(prompt, mask, versions[rows], segment_length, uniform, LENGTH, stops)
