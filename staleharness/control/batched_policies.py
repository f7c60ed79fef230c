"""Several versions acting at once, and the density of their mixture."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..simulator.policy_buffer import Version
from .moments import CLIP
from .networks import MIN_ROWS, views_of
from .policy import MLPPolicy, scaled


class BatchedPolicies:
    """Several versions acting at once, each on its own environments, in one batched computation.

    Environments are sorted by version and padded to equally long groups, so that one `bmm` per layer serves all
    (the fastest of the forms we measured, and the same bits as each version alone).
    """

    def __init__(self, policy: MLPPolicy, versions: list[Version], assignment: NDArray[np.int64]) -> None:
        """`assignment` [N] says which of `versions` (by position in the list) acts in each environment."""
        stack = {key: torch.stack([v.tensors[key] for v in versions]) for key in ("actor", "mean", "inverse_std")}
        *weights, log_std = views_of(stack["actor"], policy.actor_shapes)
        self.mean, self.inverse_std = stack["mean"][:, None], stack["inverse_std"][:, None]
        counts = np.bincount(assignment, minlength=len(versions))
        most = int(counts.max())
        width = max(MIN_ROWS, most)
        order = np.argsort(assignment, kind="stable")
        place = np.arange(len(assignment)) - np.repeat(np.cumsum(counts) - counts, counts)
        slots = np.zeros((len(versions), most), dtype=np.int64)
        slots[assignment[order], place] = order
        position = np.empty(len(assignment), dtype=np.int64)
        position[order] = assignment[order] * width + place
        self.slots = torch.from_numpy(slots).to(policy.device)  # [K, most] environment behind each row
        self.position = torch.from_numpy(position).to(policy.device)  # [N] padded row of each environment
        self.log_std = log_std.squeeze(1)[torch.from_numpy(assignment).to(policy.device)]  # [N, A]
        self.std = self.log_std.exp()
        self.density, self.act_dim = policy.density, policy.act_dim
        if policy.act_dim == 1:  # see `networks`
            weights[-2:] = [torch.nn.functional.pad(each, (0, 1)) for each in weights[-2:]]
        self.weights, self.biases = weights[::2], weights[1::2]
        # inputs of every layer, [K, width, in]; what pads them to `width` rows goes through the products only
        self.inputs = [torch.zeros(len(versions), width, w.shape[1], device=policy.device) for w in self.weights]
        self.rows = [each[:, :most] for each in self.inputs]

    def means(self, obs: Tensor) -> Tensor:
        """Mean actions [N, A] for raw observations [N, D], each by its own version with its own statistics."""
        scaled = torch.sub(obs[self.slots], self.mean, out=self.rows[0])
        scaled.mul_(self.inverse_std).clamp_(-CLIP, CLIP)
        for i, rows in enumerate(self.rows[1:]):
            torch.baddbmm(self.biases[i], self.inputs[i], self.weights[i], out=self.inputs[i + 1])
            rows.tanh_()
        mean = torch.baddbmm(self.biases[-1], self.inputs[-1], self.weights[-1])
        return mean.flatten(0, 1)[self.position, : self.act_dim]

    def act(self, obs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """(actions [N, columns], mean actions [N, A]: what the networks put out)."""
        mean = self.means(obs)
        return self.density.act(mean, self.std, noise), mean


def mixture_logp(
    policy: MLPPolicy, versions: list[Version], shares: list[float], obs: Tensor, action: Tensor
) -> Tensor:
    """log Σ_k m_k π_k(a|s) over `versions` with probabilities `shares`, for [N, D] and [N, A] (VACO, eq. 1)."""
    terms = []
    for version, share in zip(versions, shares, strict=True):
        weights = views_of(version.tensors["actor"], policy.actor_shapes)
        mean, log_std = policy.actor(weights, scaled(version, obs))
        terms.append(policy.density.logp(action, mean, log_std) + math.log(share))
    return torch.logsumexp(torch.stack(terms), 0) if len(terms) > 1 else terms[0]
