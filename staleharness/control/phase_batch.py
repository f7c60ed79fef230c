"""One phase's data as the learner reads it: flat decisions, scaled rewards, and what was fixed at phase start."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..batch import Rollout, Trajectories
from .policy import Evaluation, MLPPolicy
from .spec import ControlSpec


@dataclass(frozen=True)
class PhaseBatch:
    """B rows of T decisions; flat tensors [N] = [B·T] are in row order."""

    rollout: Rollout
    obs: Tensor  # [N, D] raw
    action: Tensor  # [N, A]
    behaviour_logp: Tensor  # [N] as recorded
    version_logp: Tensor | None  # [N] of the version that a copy acted for; None: the version acted
    reward: Tensor  # [B, T] scaled
    discount: Tensor  # [B, T] γ, and 0 at terminations
    continues: Tensor  # [B, T] 1 where the next column is the next decision of the same episode
    lag: Tensor  # [N] phases, float
    behaviour_step: Tensor  # [N] gradient steps done when the behaviour version was stored, float
    start: Evaluation  # the learner at the start of the phase: π_T and its critic
    gae_lambda: float

    @classmethod
    def prepare(cls, spec: ControlSpec, policy: MLPPolicy, rollout: Rollout, reward: Tensor, phase: int) -> PhaseBatch:
        """`reward` [B, T] is already scaled. One forward pass of the learner over everything."""
        done = rollout.terminated | rollout.truncated
        terminal = rollout.terminated if spec.bootstrap_truncation else done
        continues = (~done).float()
        continues[:, -1] = 0.0
        obs, action = rollout.obs.flatten(0, 1), rollout.action.flatten(0, 1)
        return cls(
            rollout=rollout,
            obs=obs,
            action=action,
            behaviour_logp=rollout.behaviour_logp.flatten(),
            version_logp=None if rollout.version_logp is None else rollout.version_logp.flatten(),
            reward=reward,
            discount=spec.discount * (~terminal).float(),
            continues=continues,
            lag=(phase - rollout.version).float().flatten(),
            behaviour_step=rollout.gradient_step.float().flatten(),
            start=policy.evaluate(obs, action),
            gae_lambda=spec.gae_lambda,
        )

    def trajectories(self, policy: MLPPolicy, logp: Tensor, value: Tensor, rows: Tensor | None = None) -> Trajectories:
        """Return the input of `Algorithm.targets` for `rows` [R] (default: all), given the learner's log-probabilities
        and values [R, T] there; where versions kept their critics, these take the place of the learner's values. The
        next observation's value is the next column's, except where the rollout recorded another observation."""
        rollout = self.rollout
        index: Tensor | slice = slice(None) if rows is None else rows
        finals: Tensor | slice = slice(None)
        row = rollout.final_row
        if rows is not None:
            finals, row = (row[:, None] == rows[None, :]).nonzero().unbind(1)
        obs, step = rollout.final_obs[finals], rollout.final_step[finals]
        if rollout.behaviour_value.shape[-1] > 0:
            value, final_value = rollout.behaviour_value[index][..., 0], rollout.final_value[finals][:, 0]
        else:
            final_value = policy.values(obs)
        next_value = torch.cat([value[:, 1:], torch.zeros_like(value[:, :1])], 1)
        # a termination has no next value, and its final observation may be anything, NaN too
        terminal = self.discount[index][row, step] == 0
        next_value[row, step] = final_value.masked_fill(terminal & ~final_value.isfinite(), 0.0)
        return Trajectories(
            reward=self.reward[index],
            discount=self.discount[index],
            continues=self.continues[index],
            value=value,
            next_value=next_value,
            behaviour_logp=rollout.behaviour_logp[index],
            target_logp=logp,
            lag=self.lag.view(self.reward.shape)[index],
            mask=torch.ones_like(value),
            gae_lambda=self.gae_lambda,
        )

    def minibatches(
        self, count: int, whole_rows: bool, rng: np.random.Generator, loss_mask: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """`count` shuffled parts as indices [R, T] into the flat decisions; single decisions ([n, 1]) unless
        `whole_rows`, where time order has to be kept. Decisions where `loss_mask` [N] is False are in none of them."""
        rows, steps = self.reward.shape
        order = torch.from_numpy(rng.permutation(rows if whole_rows else rows * steps)).to(self.obs.device)
        order = order if loss_mask is None else order[loss_mask[order]]
        index = order[:, None]
        if whole_rows:
            index = index * steps + torch.arange(steps, device=self.obs.device)
        return index.tensor_split(count)
