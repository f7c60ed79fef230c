"""The completions of one gradient step, with all that is known of them before the learner scores them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..batch import BEGINNING, Completions, Decisions, Progress


def pieces(data: Completions, micro_batch: int) -> list[Completions]:
    """`data` in parts of at most `micro_batch` rows; 0: in one."""
    rows = parts(np.arange(len(data.token)), micro_batch)
    if len(rows) == 1:
        return [data]
    return [data.rows(torch.from_numpy(part).to(data.token.device)) for part in rows]


@dataclass(frozen=True)
class Minibatch:
    """Whole completions [B, T]; nothing here depends on the gradient step that is about to be taken."""

    data: Completions
    mask: Tensor  # [B, T] 1 where a token is trained on
    weights: Tensor  # [B, T] the loss is Σ weights · L, see `aggregation_weights`
    proximal_logp: Tensor  # [B, T] under the anchor that the method asks for
    aligned_logp: Tensor | None  # [B, T] under the learner when targets were last computed, where scored
    reference_logp: Tensor | None  # [B, T] under the run's first policy, where the method needs it
    lag: Tensor  # [B, T] phases
    gradient_lag: Tensor  # [B, T] gradient steps
    state: Mapping[str, Any]  # the method's own
    progress: Progress = BEGINNING

    def rows(self, index: Tensor) -> Minibatch:
        """The rows at `index` [R]; their weights stay those of the whole minibatch."""
        tensors: dict[str, Any] = {name: x[index] for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, data=self.data.rows(index), **tensors)

    def decisions(self, target_logp: Tensor, advantage: Tensor, logit_norm: Tensor | None = None) -> Decisions:
        """Return the decisions of a method's loss: these rows under the learner's `target_logp` [B, T]."""
        return Decisions(
            target_logp=target_logp,
            behaviour_logp=self.data.behaviour_logp,
            proximal_logp=self.proximal_logp,
            advantage=advantage,
            lag=self.lag,
            gradient_lag=self.gradient_lag,
            mask=self.mask,
            state=self.state,
            progress=self.progress,
            group=self.data.group,
            outcome=self.data.outcome,
            logit_norm=logit_norm,
            reference_logp=self.reference_logp,
            version_logp=self.data.version_logp,
        )


def parts(rows: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """`rows` in pieces of at most `size`; 0 is all at once."""
    return [rows] if size == 0 or len(rows) <= size else [rows[i : i + size] for i in range(0, len(rows), size)]
