"""The shared mathematics: ratios, divergences, advantages. Pure functions of tensors, [B, T] in and out.

Nothing here imports torch: the tensors that come in bring their methods with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .batch import Targets, Trajectories

if TYPE_CHECKING:
    from torch import Tensor


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of `x` over the decisions where `mask` is 1 (a scalar)."""
    return (x * mask).sum() / mask.sum().clamp(min=1.0)


def importance_ratio(target_logp: Tensor, behaviour_logp: Tensor, limit: float = 20.0) -> Tensor:
    """w = π/μ per decision, from joint log-probabilities; the log-ratio is clamped to ±`limit` before exp."""
    return (target_logp - behaviour_logp).clamp(-limit, limit).exp()


def total_variation(ratio: Tensor, mask: Tensor) -> Tensor:
    """D_TV(π, μ) = ½ E_μ|w − 1|, estimated on the sample (Achiam et al. 2017)."""
    return 0.5 * masked_mean((ratio - 1.0).abs(), mask)


def effective_sample_size(ratio: Tensor, mask: Tensor) -> Tensor:
    """(Σw)² / (n Σw²), as a fraction in (0, 1]."""
    weights = ratio * mask
    return weights.sum().square() / (mask.sum() * weights.square().sum()).clamp(min=1e-30)


def gae(t: Trajectories) -> Targets:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16), with bootstrapping at truncation."""
    delta = t.reward + t.discount * t.next_value - t.value
    decay = t.discount * t.continues * t.gae_lambda
    advantage = delta.clone()
    carry = delta[:, -1]
    for s in range(delta.shape[1] - 2, -1, -1):
        carry = delta[:, s] + decay[:, s] * carry
        advantage[:, s] = carry
    return Targets(advantage, advantage + t.value)
