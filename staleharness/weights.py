"""Importance weights of decisions and of whole rows, for methods that weight log π explicitly. All tensors [B, T].

A row is a completion, so its weight is shared by its decisions; on shuffled control data ([N, 1]) a row is one
decision, and all levels are the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from .batch import Decisions
from .objectives import clipped_surrogate, importance_ratio, log_ratio, masked_mean, sequence_log_ratio

if TYPE_CHECKING:
    from torch import Tensor

Level = Literal["token", "sequence", "geometric"]


def level_log_ratio(log_w: Tensor, mask: Tensor, level: Level) -> Tensor:
    """log of the weight at a level: each decision's own, its row's Σ log w, or its row's mean of log w.

    The sum is the log of a row's unbiased weight (w = Π w_t), clamped to ±20; the mean is that of its geometric mean.
    """
    if level == "token":
        return log_w
    if level == "geometric":
        return row_mean(log_w, mask)
    return sequence_log_ratio(log_w, mask)[:, None].expand(log_w.shape)


def row_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean over each row's decisions, repeated for each of them [B, T]."""
    return ((x * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1.0)).expand(x.shape)


def weighted_surrogate(d: Decisions, clip: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return log of the weighting ratio, the objective that it multiplies (to be maximised), and 1 where clipped.

    `clip` = 0, two policies: the ratio is π/μ and the objective A log π (REINFORCE).
    `clip` > 0, three: the ratio is π_prox/μ and the objective PPO's, clipped at 1 ± `clip` around π_prox.

    One or the other, so that no decision is weighted twice.
    """
    return _surrogate(d, clip, d.proximal_logp if clip > 0 else d.target_logp.detach(), d.proximal_logp)


def engine_surrogate(d: Decisions, clip: float) -> tuple[Tensor, Tensor, Tensor]:
    """`weighted_surrogate` with a weight for the sampler's engine alone: the ratio is π_version/μ, without lag.

    `clip` > 0: PPO's objective, clipped at 1 ± `clip` around π_version, so that the clip acts on lag alone.
    `clip` = 0: A log π; lag is not corrected.
    """
    version = d.behaviour_logp if d.version_logp is None else d.version_logp
    return _surrogate(d, clip, version, version)


def _surrogate(d: Decisions, clip: float, corrected_logp: Tensor, anchor_logp: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-ratio of `corrected_logp` to μ, the objective clipped around `anchor_logp` and 1 where clipped."""
    log_w = log_ratio(corrected_logp, d.behaviour_logp)
    if clip > 0:
        return log_w, *clipped_surrogate(importance_ratio(d.target_logp, anchor_logp), d.advantage, clip)
    return log_w, d.advantage * d.target_logp, log_w.new_zeros(log_w.shape)


def truncated(weight: Tensor, cap: float) -> tuple[Tensor, Tensor]:
    """min(weight, cap), and 1 where that truncated the weight; `cap` 0 is no cap."""
    limit = cap or math.inf
    return weight.clamp(max=limit), (weight > limit).to(weight.dtype)


def batch_normalised(weight: Tensor, mask: Tensor, level: Level) -> Tensor:
    """weight / its mean, over decisions at token level and over rows at the others (self-normalised weights)."""
    if level == "token":
        mean = masked_mean(weight, mask)
    else:
        mean = masked_mean(weight[:, :1], (mask.sum(1, keepdim=True) > 0).to(mask.dtype))
    return weight / mean.clamp(min=1e-8)


def outside(log_w: Tensor, low: float, high: float) -> Tensor:
    """1 where a weight is not in [low, high]; 0 is no bound."""
    below = log_w < (math.log(low) if low > 0 else -math.inf)
    above = log_w > (math.log(high) if high > 0 else math.inf)
    return (below | above).to(log_w.dtype)


def binary_kl(log_w: Tensor, behaviour_logp: Tensor) -> Tensor:
    """Larger of KL[μ ‖ π] and KL[π ‖ μ], nats, of two outcomes: this decision, and all others. log π = log μ + log w.

    Probabilities are cut to 1e-6 … 1 − 1e-6.
    """
    mu, pi = (x.detach().exp().clamp(1e-6, 1.0 - 1e-6) for x in (behaviour_logp, behaviour_logp + log_w))
    token_log, rest_log = (mu / pi).log(), ((1.0 - mu) / (1.0 - pi)).log()
    return (mu * token_log + (1.0 - mu) * rest_log).maximum(-(pi * token_log + (1.0 - pi) * rest_log))


def vetoed(log_w: Tensor, mask: Tensor, least: float) -> Tensor:
    """1 on all decisions of a row if the ratio of any one of them is below `least`; 0 means no veto."""
    impossible = (outside(log_w, least, 0.0) * mask).amax(1, keepdim=True)
    return impossible.expand(log_w.shape)


def kept_share(mask_kept: Tensor, mask: Tensor, denominator: Literal["all", "kept"]) -> Tensor | float:
    """Divisor of a loss that turns its mean over all decisions into the mean over `denominator`."""
    if denominator == "all":
        return 1.0
    return (mask_kept * mask).sum().clamp(min=1.0) / mask.sum().clamp(min=1.0)
