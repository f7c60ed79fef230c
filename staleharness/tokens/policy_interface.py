"""Interface of a policy of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..batch import Completions
    from ..training.policy_buffer import Version


# of a language model: (ids, attention mask, positions, cache, keep) -> logits [B, keep, V]
Forward = Callable[..., Tensor]


Entropy = Literal["none", "value", "gradient"]


class TokenScores(NamedTuple):
    """Teacher-forced scores of completions, all [B, T] and 0 at padding."""

    logp: Tensor
    entropy: Tensor | None  # nats
    norm: Tensor | None  # Σ_v π(v)²
    experts: Tensor | None = None  # [B, P + T, layers, k] that the routers of a mixture of experts chose


class TokenPolicy(Protocol):
    """Policy that the token learner trains."""

    device: torch.device
    micro_batch: int  # completions in one forward pass; 0: all

    @property
    def parameters(self) -> Mapping[str, Tensor]:
        """Trainable parameters by name."""

    def snapshot(self, phase: int, gradient_step: int) -> Version: ...

    def acting(self, versions: Sequence[Version], position: NDArray[np.int64]) -> AbstractContextManager[Forward]:
        """A forward pass in which row i is computed by `versions[position[i]]`."""

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
        """Score by the learner unless another forward pass is given. For a mixture of experts there is one more
        argument, the `experts` [B, P + T, layers, k] to go through."""


def score_completions(
    policy: TokenPolicy,
    data: Completions,
    forward: Forward | None = None,
    entropy: Entropy = "value",
    norm: bool = False,
) -> TokenScores:
    """Return the scores of completions, using the experts with which they are to be replayed, if any."""
    replay = {} if data.experts is None else {"experts": data.experts}
    return policy.score(data.prompt, data.prompt_mask, data.token, data.mask, forward, entropy, norm, **replay)
