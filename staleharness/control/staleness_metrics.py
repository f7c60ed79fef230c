"""Metrics of the data of a phase against the learner: how stale they are before it and after it; and of the critic."""

from __future__ import annotations

import torch
from torch import Tensor

from ..objectives import effective_sample_size, importance_ratio, total_variation
from .phase_batch import PhaseBatch


def staleness_of_data(batch: PhaseBatch) -> dict[str, float]:
    """π_T against behaviour, before any update: TV, ESS, KL[μ‖π_T] (k1, k3), and the weights themselves."""
    log_ratio = batch.start.logp - batch.behaviour_logp
    ratio, ones = importance_ratio(batch.start.logp, batch.behaviour_logp), torch.ones_like(log_ratio)
    return {
        **_two_factors(batch),
        "tv_data": float(total_variation(ratio, ones)),
        "ess_data": float(effective_sample_size(ratio, ones)),
        "kl_k1_data": float(-log_ratio.mean()),
        "kl_k3_data": float((ratio - 1.0 - log_ratio).mean()),
        "weight_max_data": float(ratio.max()),
        "weight_std_data": float(ratio.std(correction=0)),
    }


def _two_factors(batch: PhaseBatch) -> dict[str, float]:
    """KL[μ ‖ π_T] (k1) in two parts, under MISMATCH: from μ to the version it copies, and from that version to π_T."""
    if batch.version_logp is None:
        return {}
    return {
        "mismatch/kl_k1_engine_data": float((batch.behaviour_logp - batch.version_logp).mean()),
        "mismatch/kl_k1_lag_data": float((batch.version_logp - batch.start.logp).mean()),
    }


def after_training(batch: PhaseBatch, logp: Tensor) -> dict[str, float]:
    """π after the phase against behaviour (`tv_end`, `ess_end`) and against π_T (`tv_forward`); logp [N]."""
    ratio, ones = importance_ratio(logp, batch.behaviour_logp), torch.ones_like(logp)
    # D_TV(π, π_T) = ½ E_μ|π/μ − π_T/μ|: the sample is behaviour's, so both enter as weights against it
    start_ratio = importance_ratio(batch.start.logp, batch.behaviour_logp)
    return {
        "tv_end": float(total_variation(ratio, ones)),
        "ess_end": float(effective_sample_size(ratio, ones)),
        "tv_forward": float(0.5 * (ratio - start_ratio).abs().mean()),
    }


def explained_variance(value: Tensor, target: Tensor) -> float | None:
    """1 − Var[target − V] / Var[target], or None where the targets do not vary."""
    spread = float(target.var(correction=0))
    return 1.0 - float((target - value).var(correction=0)) / spread if spread > 0 else None
