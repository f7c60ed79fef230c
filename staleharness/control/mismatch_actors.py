"""Copies of versions that act in their place under a mismatch model, and both log-probabilities of what they did."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ..batch import Rollout
from ..mismatch import Mismatch, Place
from ..training.policy_buffer import Version
from ..training.sampler_copies import CopyTensors, apply
from .networks import views_of
from .policy import MLPPolicy


def temperature_of(models: Sequence[Mismatch]) -> float:
    """Return the temperature of all models together."""
    return math.prod(model.temperature for model in models)


def actor_copy(models: Sequence[Mismatch], policy: MLPPolicy, seed: int) -> CopyTensors:
    """Return a function that copies a version: every matrix of its actor, but neither biases nor the critic. The
    temperature multiplies the variance of normals and divides the logits of choices."""
    temperature = temperature_of(models)

    def copy(version: Version) -> dict[str, Tensor]:
        flat = version.tensors["actor"].clone()
        *layers, log_std = views_of(flat, policy.actor_shapes)
        for i, weight in enumerate(layers[::2]):  # [in, out] here
            weight.copy_(apply(models, weight.t(), Place(f"actor.{i}", version.phase, seed)).t())
        log_std += 0.5 * math.log(temperature)
        if policy.density.deviations == 0:
            layers[-2].div_(temperature)
            layers[-1].div_(temperature)
        return {**version.tensors, "actor": flat}

    return copy


@torch.no_grad()
def with_both_policies(
    rollout: Rollout, versions: dict[int, Version], policy: MLPPolicy, models: Sequence[Mismatch], behaviour: str
) -> Rollout:
    """Return what copies of `versions` recorded, with the log-probabilities that they report and those of the versions;
    μ is the version's where `behaviour` is "version"."""
    shape, numbers = rollout.version.shape, sorted(versions)
    position = np.searchsorted(numbers, rollout.version.flatten().cpu().numpy())
    acting = policy.acting([versions[v] for v in numbers], position)
    mean = acting.means(rollout.obs.flatten(0, 1)).view_as(rollout.behaviour_mean)
    log_std = acting.log_std.view_as(rollout.behaviour_log_std)
    logp = policy.density.logp(rollout.action, mean, log_std)
    rollout = replace(
        rollout,
        sampler_logp=_logp_of_copies(rollout, policy, models),
        version_logp=logp,
        version_entropy=policy.density.entropies(mean, log_std).view(shape),
    )
    if behaviour == "version":
        rollout = replace(rollout, behaviour_logp=logp, behaviour_mean=mean, behaviour_log_std=log_std)
    return rollout


def _logp_of_copies(rollout: Rollout, policy: MLPPolicy, models: Sequence[Mismatch]) -> Tensor:
    """Return the copies' own log-probabilities [B, T]; raw ones are before the temperature."""
    if not any(model.raw for model in models):
        return rollout.behaviour_logp
    temperature, normal = temperature_of(models), policy.density.deviations > 0
    mean = rollout.behaviour_mean if normal else rollout.behaviour_mean * temperature
    return policy.density.logp(rollout.action, mean, rollout.behaviour_log_std - 0.5 * math.log(temperature))
