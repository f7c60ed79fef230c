"""What a reward at the last token teaches each token: the group-relative advantage."""

from __future__ import annotations

import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..batch import Trajectories
from ..objectives import group_baseline
from ..simulator.answers import targets_of
from ..simulator.learning import normalised
from .minibatch import Minibatch
from .spec import TokenSpec


def group_relative_advantage(spec: TokenSpec, algorithm: Algorithm, batch: Minibatch, target_logp: Tensor) -> Tensor:
    """Advantages [B, T] by the method's own targets under the learner's `target_logp` [B, T].

    The group's baseline takes the place of the critic's value everywhere, so GAE(1, 1) is (R − baseline)/scale.
    """
    data, valid = batch.data, batch.data.mask
    baseline, scale = group_baseline(data.outcome, data.group, spec.baseline)
    last = valid * (torch.cat([valid[:, 1:], torch.zeros_like(valid[:, :1])], 1) == 0)
    value = (baseline / scale)[:, None] * valid
    next_value = torch.cat([value[:, 1:], torch.zeros_like(value[:, :1])], 1)
    with torch.no_grad():
        targets = targets_of(
            algorithm,
            Trajectories(
                reward=(data.outcome / scale)[:, None] * last,
                discount=spec.discount * valid * (1.0 - last),
                continues=valid * (1.0 - last),
                value=value,
                next_value=next_value,
                behaviour_logp=data.behaviour_logp,
                target_logp=target_logp,
                lag=batch.lag,
                mask=valid,
                gae_lambda=spec.gae_lambda,
            ),
        )
    advantage = targets.advantage * batch.mask
    if spec.normalise_advantage and algorithm.normalise_advantage:
        advantage = normalised(advantage, batch.mask, spec.advantage_correction)
    return advantage
