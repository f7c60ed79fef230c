"""How stale the data were and what a phase did about it: means over one phase's decisions, as plain floats."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..objectives import effective_sample_size, importance_ratio, total_variation
from .phase_batch import PhaseBatch


def lag_of(batch: PhaseBatch, gradient_steps: int) -> dict[str, float | list[int]]:
    """Realised backward lag: phases (mean, 95th percentile, max, histogram from lag 0 up) and gradient steps."""
    lag = batch.lag.long()
    return {
        "lag_mean": float(batch.lag.mean()),
        "lag_p95": float(batch.lag.sort().values[math.ceil(0.95 * lag.numel()) - 1]),
        "lag_max": int(lag.max()),
        "lag_histogram": torch.bincount(lag).tolist(),
        "gradient_lag_mean": float((gradient_steps - batch.behaviour_step).mean()),
    }


def staleness_of_data(batch: PhaseBatch) -> dict[str, float]:
    """π_T against behaviour, before any update: TV, ESS, KL[μ‖π_T] (k1, k3), and the weights themselves."""
    log_ratio = batch.start.logp - batch.behaviour_logp
    ratio, ones = importance_ratio(batch.start.logp, batch.behaviour_logp), torch.ones_like(log_ratio)
    return {
        "tv_data": float(total_variation(ratio, ones)),
        "ess_data": float(effective_sample_size(ratio, ones)),
        "kl_k1_data": float(-log_ratio.mean()),
        "kl_k3_data": float((ratio - 1.0 - log_ratio).mean()),
        "weight_max_data": float(ratio.max()),
        "weight_std_data": float(ratio.std(correction=0)),
    }


def after_training(batch: PhaseBatch, logp: Tensor) -> dict[str, float]:
    """π after the phase against behaviour (`tv_end`, `ess_end`) and against π_T (`tv_forward`); logp [N]."""
    ratio, ones = importance_ratio(logp, batch.behaviour_logp), torch.ones_like(logp)
    # D_TV(π, π_T) = ½ E_μ|π/μ − π_T/μ|: the sample is behaviour's, so both enter as weights against it
    started = importance_ratio(batch.start.logp, batch.behaviour_logp)
    return {
        "tv_end": float(total_variation(ratio, ones)),
        "ess_end": float(effective_sample_size(ratio, ones)),
        "tv_forward": float(0.5 * (ratio - started).abs().mean()),
    }


def explained_variance(value: Tensor, target: Tensor) -> float | None:
    """1 − Var[target − V] / Var[target], or None where the targets do not vary."""
    spread = float(target.var(correction=0))
    return 1.0 - float((target - value).var(correction=0)) / spread if spread > 0 else None
