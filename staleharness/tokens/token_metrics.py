"""Metrics of a generation round and of each gradient step: scalars [] on the learner's device, or floats."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..batch import Completions, Decisions, PolicyLoss
from ..objectives import (
    effective_sample_size,
    importance_ratio,
    masked_mean,
    sequence_log_ratio,
    sequence_sample_size,
    total_variation,
)

TAIL = math.log(2.0)  # size of a log-ratio from which a decision is in the tails


def round_metrics(data: Completions, completions: int) -> dict[str, float]:
    """Reward, lengths, and what could not be graded or was cut."""
    length = data.mask.sum(1)
    changes = torch.zeros_like(data.mask)
    if bool((data.version != data.version[:, :1]).any()):
        versions = (data.version.masked_fill(data.mask == 0, -1)).sort(1).values
        changes = (versions[:, 1:] != versions[:, :-1]) & (versions[:, :-1] >= 0)
    return {
        "reward": float(data.outcome.mean()),
        "rollout_return": float(data.outcome.mean()),
        "rollout_length": float(length.mean()),
        "length_max": float(length.max()),
        "truncated": float(data.truncated.float().mean()),
        "unparsed": float(data.unparsed.float().mean()),
        "groups_without_signal": float((~data.rewards_differ(completions)).float().mean()),
        "versions_per_sequence": float(1.0 + changes.sum(1).float().mean()),
    }


def step_metrics(
    decisions: Decisions, answer: PolicyLoss, logp_gradient: Tensor, entropy: Tensor, weights: Tensor, proximal: str
) -> dict[str, Tensor]:
    """Return the metrics of one gradient step; logp_gradient [B, T] is ∂L/∂log π, entropy [B, T] without gradient, the
    loss Σ weights · L, `proximal` the anchor of the method."""
    mask = decisions.mask
    with torch.no_grad():
        return {
            "policy_loss": (weights * answer.loss).sum().detach(),
            "entropy": masked_mean(entropy, mask),
            **weight_metrics(decisions.target_logp.detach(), decisions.behaviour_logp, mask),
            **two_factor_metrics(decisions),
            **proximal_metrics(decisions, answer, proximal != "behaviour", mask),
            **clipping_metrics(logp_gradient, decisions.advantage, mask),
        }


def weight_metrics(target_logp: Tensor, behaviour_logp: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Importance weights w = π/μ, before any truncation, for tokens and whole completions. Every weight counts as
    1, as on-policy, where `mask` is 0 everywhere."""
    target_logp, behaviour_logp = target_logp * mask, behaviour_logp * mask
    log_ratio, token = target_logp - behaviour_logp, importance_ratio(target_logp, behaviour_logp)
    mask = mask.where(mask.any(), 1.0)
    rows = (mask.sum(1) > 0).to(mask.dtype)
    sequence = sequence_log_ratio(log_ratio, mask).exp()
    return {
        "tv": total_variation(token, mask),
        "ess": effective_sample_size(token, mask),
        "ess_sequence": sequence_sample_size(log_ratio, mask),
        "kl_k1": -masked_mean(log_ratio, mask),
        "kl_k3": masked_mean(token - 1.0 - log_ratio, mask),
        "chi2": masked_mean(token.square(), mask) - 1.0,
        "chi2_sequence": masked_mean(sequence.square(), rows) - 1.0,
        **_summary("weight", token, mask),
        **_summary("weight_sequence", sequence, rows),
    }


def mismatch_metrics(
    sampler_logp: Tensor | None, version_logp: Tensor, version_entropy: Tensor, mask: Tensor
) -> dict[str, float]:
    """Return the distances between sampler and trainer at the version that acted, w = π_version/sampler, without any
    lag. All [B, T]; `sampler_logp` is None for a sampler that reports nothing.

    `surprisal_gap`: the mean over tokens of H(π_version) + log π_version(a), over its standard error. Where
    a ~ π_version each term has mean 0 given those before it, so it is standard normal whatever the policy; 0 where all
    terms are equal, as of a single token.
    """
    mask, version_logp = mask.double(), version_logp.double()  # near 0, rounding would dominate
    count = mask.sum()
    surprise = (version_entropy + version_logp) * mask
    mean = surprise.sum() / count
    variance = ((surprise - mean).square() * mask).sum() / (count - 1.0).clamp(min=1.0)
    error = float((variance / count).sqrt())
    gap = {"mismatch/surprisal_gap": float(mean) / error if error > 1e-12 else 0.0}
    if sampler_logp is None:
        return gap
    weights = weight_metrics(version_logp, sampler_logp.double(), mask)
    distance = masked_mean((version_logp - sampler_logp).abs(), mask)
    values = {name: weights[name] for name in ("kl_k1", "kl_k3", "tv", "ess", "ess_sequence")}
    values |= {"abs_mean": distance, "max": weights["weight_max"], "min": weights["weight_min"]}
    return {f"mismatch/{name}": float(x) for name, x in values.items()} | gap


def two_factor_metrics(decisions: Decisions) -> dict[str, Tensor]:
    """Return KL[μ ‖ π], estimator k1, in its two parts: μ to the version that acted, and from there to π, by
    age, and the shares of tails. Empty where the first part is 0, since μ is that version's own number."""
    version, mask = decisions.version_logp, decisions.mask
    if version is None or version is decisions.behaviour_logp:
        return {}
    return {
        "mismatch/kl_k1_engine": -masked_mean(version - decisions.behaviour_logp, mask),
        "mismatch/kl_k1_lag": -masked_mean(decisions.target_logp.detach() - version, mask),
        **age_metrics(decisions),
        **tail_masks(decisions),
    }


def age_metrics(decisions: Decisions) -> dict[str, Tensor]:
    """Return KL[μ ‖ π] (k3) of decisions no older than the minibatch's mean lag, and of those that are older (0 where
    there are none)."""
    log_ratio = decisions.target_logp.detach() - decisions.behaviour_logp
    kl = log_ratio.exp() - 1.0 - log_ratio
    newer, older = by_age(decisions)
    return {"mismatch/kl_k3_newer": masked_mean(kl, newer), "mismatch/kl_k3_older": masked_mean(kl, older)}


def by_age(decisions: Decisions) -> tuple[Tensor, Tensor]:
    """Return masks [B, T] of the decisions no older than the minibatch's mean lag, and of those that are older."""
    older = (decisions.lag > masked_mean(decisions.lag, decisions.mask)).to(decisions.mask.dtype)
    return decisions.mask * (1.0 - older), decisions.mask * older


def tail_masks(decisions: Decisions) -> dict[str, Tensor]:
    """Return masks [B, T] of ratios above 2 or below ½: π_version/μ (engine), π/π_version (lag), and π/μ by the sign
    of the advantage and by age, no older or older than the minibatch's mean lag."""
    version = decisions.version_logp
    if version is None:
        return {}
    target, behaviour = decisions.target_logp.detach(), decisions.behaviour_logp
    log_ratios = torch.stack((version - behaviour, target - version, target - behaviour))
    engine, lag, total = (log_ratios.abs() > TAIL).unbind()
    newer, older = by_age(decisions)
    return {
        "mismatch/tails_engine": engine,
        "mismatch/tails_lag": lag,
        "mismatch/tails_positive": total & (decisions.advantage > 0),
        "mismatch/tails_negative": total & (decisions.advantage < 0),
        "mismatch/tails_newer": total & newer.bool(),
        "mismatch/tails_older": total & older.bool(),
    }


def proximal_metrics(decisions: Decisions, answer: PolicyLoss, by_learner: bool, mask: Tensor) -> dict[str, Tensor]:
    """Extremes of u = π_prox/μ over tokens, where the method has a proximal policy that is not the behaviour policy.

    `by_learner`: that policy is a version or average of the learner, and u is before any truncation. Otherwise u is the
    weight that an interpolating method (A-3PO) reports as `behaviour_weight`; without it there is none.
    """
    if by_learner:
        weight = importance_ratio(decisions.proximal_logp, decisions.behaviour_logp)
    elif "behaviour_weight" in answer.diagnostics:
        weight = answer.diagnostics["behaviour_weight"].detach()
    else:
        return {}
    return _extremes("proximal_weight", weight, mask)


def _summary(name: str, weight: Tensor, mask: Tensor) -> dict[str, Tensor]:
    mean = masked_mean(weight, mask)
    return {
        f"{name}_mean": mean,
        f"{name}_std": masked_mean((weight - mean).square(), mask).sqrt(),
        **_extremes(name, weight, mask),
    }


def _extremes(name: str, weight: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Return the extremes of `weight` where `mask` is not 0; where it is 0 everywhere, both are 1, as on-policy."""
    inside = mask.bool()
    extremes = {
        f"{name}_max": weight.masked_fill(~inside, -math.inf).max(),
        f"{name}_min": weight.masked_fill(~inside, math.inf).min(),
    }
    return {key: torch.where(inside.any(), x, torch.ones_like(x)) for key, x in extremes.items()}


def clipping_metrics(logp_gradient: Tensor, advantage: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Share of all tokens that had an advantage and got no gradient from the method; also by the advantage's sign."""
    silent = (logp_gradient == 0) & (mask > 0)
    return {
        "clipped": masked_mean((silent & (advantage != 0)).float(), mask),
        "clipped_positive": masked_mean((silent & (advantage > 0)).float(), mask),
        "clipped_negative": masked_mean((silent & (advantage < 0)).float(), mask),
    }
