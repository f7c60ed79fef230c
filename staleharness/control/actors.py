"""Several versions acting at once, and the density of their mixture."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..simulator.buffer import Version
from .moments import CLIP
from .networks import MIN_ROWS, gaussian_logp, means, views_of
from .policy import MLPPolicy


class Actors:
    """Several versions acting at once, each on its own environments, in one batched computation.

    Environments are sorted by version and padded to equally long groups, so that one `bmm` per layer serves all
    (the fastest of the forms we measured, and the same bits as each version alone).
    """

    def __init__(self, policy: MLPPolicy, versions: list[Version], assignment: NDArray[np.int64]) -> None:
        """`assignment` [N] says which of `versions` (by position in the list) acts in each environment."""
        stack = {
            key: torch.stack([v.tensors[key] for v in versions]) for key in ("actor", "mean", "inverse_std")
        }
        self.parameters = views_of(stack["actor"], policy.actor_shapes)
        self.mean, self.inverse_std = stack["mean"][:, None], stack["inverse_std"][:, None]
        counts = np.bincount(assignment, minlength=len(versions))
        width = max(MIN_ROWS, int(counts.max()))
        order = np.argsort(assignment, kind="stable")
        place = np.arange(len(assignment)) - np.repeat(np.cumsum(counts) - counts, counts)
        slots = np.zeros((len(versions), width), dtype=np.int64)
        slots[assignment[order], place] = order
        position = np.empty(len(assignment), dtype=np.int64)
        position[order] = assignment[order] * width + place
        self.slots = torch.from_numpy(slots).to(
            policy.device
        )  # [K, width] environment behind each padded row
        self.position = torch.from_numpy(position).to(policy.device)  # [N] padded row of each environment
        self.log_std = self.parameters[-1].squeeze(1)[
            torch.from_numpy(assignment).to(policy.device)
        ]  # [N, A]
        self.std = self.log_std.exp()

    def means(self, obs: Tensor) -> Tensor:
        """Mean actions [N, A] for raw observations [N, D], each by its own version with its own statistics."""
        x = ((obs[self.slots] - self.mean) * self.inverse_std).clamp(-CLIP, CLIP)
        mean = means(self.parameters[:-1], x)
        return mean.flatten(0, 1)[self.position]

    def act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(actions [N, A], their log-probabilities [N], mean actions [N, A])."""
        mean = self.means(obs)
        action = mean + self.std * noise
        return action, gaussian_logp(action, mean, self.log_std), mean


def mixture_logp(
    policy: MLPPolicy, versions: list[Version], weights: list[float], obs: Tensor, action: Tensor
) -> Tensor:
    """log Σ_k m_k π_k(a|s) over `versions` with probabilities `weights`, for [N, D] and [N, A] (VACO, eq. 1)."""
    terms = []
    for version, weight in zip(versions, weights, strict=True):
        x = ((obs - version.tensors["mean"]) * version.tensors["inverse_std"]).clamp(-CLIP, CLIP)
        mean, log_std = policy.actor(views_of(version.tensors["actor"], policy.actor_shapes), x)
        terms.append(gaussian_logp(action, mean, log_std) + math.log(weight))
    return torch.logsumexp(torch.stack(terms), 0) if len(terms) > 1 else terms[0]
