"""One phase's data as the learner reads it, and metrics of how stale it is before and after the phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..batch import Rollout, Trajectories
from ..objectives import effective_sample_size, importance_ratio, total_variation
from .policy import Evaluation, MLPPolicy
from .spec import ControlSpec


@dataclass(frozen=True)
class PhaseBatch:
    """B rows of T decisions, and what is fixed in the phase; flat tensors [N] = [B·T] are in row order."""

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
        and values [B, T] there; where versions kept their critics, these take the place of the learner's values. The
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
        """`count` shuffled parts as indices [B, T] into the flat decisions; single decisions ([n, 1]) unless
        `whole_rows`, where time order has to be kept. Decisions where `loss_mask` [N] is False are in none of them."""
        rows, steps = self.reward.shape
        order = torch.from_numpy(rng.permutation(rows if whole_rows else rows * steps)).to(self.obs.device)
        order = order if loss_mask is None else order[loss_mask[order]]
        index = order[:, None]
        if whole_rows:
            index = index * steps + torch.arange(steps, device=self.obs.device)
        return index.tensor_split(count)


def staleness_of_data(batch: PhaseBatch) -> dict[str, float]:
    """π_T against behaviour, before any update: TV, ESS, KL[μ ‖ π_T] (k1, k3), and the weights themselves."""
    log_ratio = batch.start.logp - batch.behaviour_logp
    ratio, ones = importance_ratio(batch.start.logp, batch.behaviour_logp), torch.ones_like(log_ratio)
    metrics = {
        "tv_data": float(total_variation(ratio, ones)),
        "ess_data": float(effective_sample_size(ratio, ones)),
        "kl_k1_data": float(-log_ratio.mean()),
        "kl_k3_data": float((ratio - 1.0 - log_ratio).mean()),
        "weight_max_data": float(ratio.max()),
        "weight_std_data": float(ratio.std(correction=0)),
    }
    if batch.version_logp is None:
        return metrics
    # KL[μ ‖ π_T] (k1) in two parts, under MISMATCH: from μ to the version it copies, and from that version to π_T
    return metrics | {
        "mismatch/kl_k1_engine_data": float((batch.behaviour_logp - batch.version_logp).mean()),
        "mismatch/kl_k1_lag_data": float((batch.version_logp - batch.start.logp).mean()),
    }


def staleness_after_training(batch: PhaseBatch, logp: Tensor) -> dict[str, float]:
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
