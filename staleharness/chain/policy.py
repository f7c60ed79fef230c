"""A table of logits as the policy of a chain of binary decisions: one logit per position, no input."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ..tokens.policy_interface import Entropy, Forward, TokenScores
from ..training.policy_buffer import Version


def log_probability(logits: Tensor, bits: Tensor) -> Tensor:
    """log π of each decision [B, H], 0 or 1, under logits [H] or [B, H]."""
    return F.logsigmoid(torch.where(bits > 0, logits, -logits))


class BitPolicy:
    """H logits that train, and past versions of them that act. What it knows of tokens is that they are bits."""

    def __init__(self, horizon: int, logit: float, device: str = "cpu") -> None:
        self.device, self.micro_batch = torch.device(device), 0
        self.logits = torch.full((horizon,), logit, device=self.device, requires_grad=True)

    @property
    def parameters(self) -> dict[str, Tensor]:
        return {"logits": self.logits}

    def snapshot(self, phase: int, gradient_step: int) -> Version:
        return Version(phase, gradient_step, {"logits": self.logits.detach().to("cpu", copy=True)})

    @contextlib.contextmanager
    def acting(self, versions: Sequence[Version], position: NDArray[np.int64]) -> Iterator[Forward]:
        """The logits [B, H] of `versions[position[i]]` in row i."""
        rows = torch.stack([version.tensors["logits"] for version in versions])[torch.from_numpy(position)]
        yield lambda: rows.to(self.device)

    def score(
        self,
        prompt: Tensor,
        prompt_mask: Tensor,
        token: Tensor,
        mask: Tensor,
        forward: Forward | None = None,
        entropy: Entropy = "value",
        norm: bool = False,
    ) -> TokenScores:
        """Log-probabilities, entropies and, if asked for, Σ_v π(v)² of the bits `token` [B, H]; nothing is asked."""
        logits = self.logits if forward is None else forward()
        logits = logits[..., : token.shape[1]]
        spread = square = None
        if entropy != "none":
            with torch.set_grad_enabled(entropy == "gradient" and torch.is_grad_enabled()):
                p = logits.sigmoid()
                spread = -(p * F.logsigmoid(logits) + (1.0 - p) * F.logsigmoid(-logits)) * mask
        if norm:
            with torch.no_grad():
                p = logits.sigmoid()
                square = (p.square() + (1.0 - p).square()) * mask
        return TokenScores(log_probability(logits, token) * mask, spread, square)
