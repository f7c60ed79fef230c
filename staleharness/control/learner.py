"""Learning from one phase of control: shuffled decisions, critic and entropy beside the method's own loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..base.streams import stream
from ..batch import Decisions, Rollout, Targets
from ..objectives import masked_mean
from ..simulator.learning import Gradient, Learner, normalised
from .phase_batch import PhaseBatch
from .policy import Evaluation, MLPPolicy, gaussian_kl
from .spec import ControlSpec
from .staleness import after_training, explained_variance, lag_of, staleness_of_data


class ControlData(NamedTuple):
    """What a phase's learning consumes."""

    rollout: Rollout
    reward: Tensor  # [B, T] scaled
    fresh_obs: Tensor  # [N, D] raw observations of this phase's own acting, whatever the rollout


class Part(NamedTuple):
    """A minibatch: R rows of T decisions, or N single ones ([N, 1])."""

    decision: Tensor  # [R, T] into the phase's flat decisions
    rows: Tensor  # [R] the rows they come from
    targets: Targets  # flat [N], of the whole phase


class ControlLearner(Learner[ControlData, Part]):
    """Epochs of shuffled minibatches. The method's loss is taken on log-probabilities and the critic's on values, each
    as if these were given; the policy then carries both gradients back through its networks."""

    spec: ControlSpec
    says_step_scale: ClassVar[bool] = False

    def __init__(self, spec: ControlSpec, policy: MLPPolicy, algorithm: Algorithm) -> None:
        super().__init__(spec, algorithm, [policy.flat], [policy.actor_flat])
        self.policy = policy

    def begin(self, data: ControlData, phase: int) -> dict[str, Any]:
        self.phase = phase
        self.batch = batch = PhaseBatch.prepare(self.spec, self.policy, data.rollout, data.reward, phase)
        self.targets = self._targets(batch.start)
        explained = explained_variance(batch.start.value, self.targets.value_target)
        report: dict[str, Any] = lag_of(batch, self.gradient_steps) | staleness_of_data(batch)
        return report | {"explained_variance": explained}

    def minibatches(self, epoch: int) -> Iterator[Part]:
        batch, realign = self.batch, self.algorithm.realign_every
        targets = self.targets
        if realign == "epoch" and epoch > 0:
            targets = self._targets(self.policy.evaluate_now(batch.obs, batch.action))
        rng = stream(self.spec.seed, "minibatch", self.phase, epoch)
        for rows, index in batch.minibatches(self.spec.minibatches, realign == "step", rng):
            yield Part(index, rows, targets)

    def end(self) -> dict[str, Any]:
        batch = self.batch
        del self.batch, self.targets  # the next phase collects before it learns: not two phases' data at once
        return after_training(batch, self.policy.evaluate_now(batch.obs, batch.action).logp)

    def gradient(self, part: Part) -> Gradient:
        spec, policy, batch, shape = self.spec, self.policy, self.batch, part.decision.shape
        flat = part.decision.flatten()
        passed = policy.evaluate(batch.obs[flat], batch.action[flat])
        now = passed.opened()
        asked = self._asked(part, now)
        mask = torch.ones(shape, device=policy.device)
        advantage = asked.advantage
        if spec.normalise_advantage and self.algorithm.normalise_advantage:
            advantage = normalised(advantage, mask, spec.advantage_correction)
        decisions = self._decisions(part.decision, now, advantage, mask)
        answer = self.algorithm.policy_loss(decisions)
        policy_loss = masked_mean(answer.loss, mask)
        value_loss = self.value_loss(now.value, asked.value_target.flatten(), batch.start.value[flat])
        entropy = now.entropy.mean()
        loss = policy_loss - spec.entropy_coef * entropy + spec.value_coef * value_loss
        torch.autograd.backward(loss)
        policy.carry_back(passed, now)
        pull = now.logp.grad if now.logp.grad is not None else torch.zeros_like(now.logp)
        # clipped: the method left a decision no policy gradient although it had an advantage
        clipped = ((pull.view(shape) == 0) & (advantage != 0)).float()
        log = {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "clipped": masked_mean(clipped, mask),
        }
        return Gradient(decisions, answer, pull, log)

    def _targets(self, now: Evaluation) -> Targets:
        """The algorithm's targets for the whole batch, flat [N], under the learner as evaluated in `now`."""
        batch = self.batch
        with torch.no_grad():
            shown = batch.trajectories(self.policy, now.logp.view(batch.shape), now.value.view(batch.shape))
            asked = self.algorithm.targets(shown)
        return Targets(asked.advantage.flatten(), asked.value_target.flatten())

    def _asked(self, part: Part, now: Evaluation) -> Targets:
        """Advantages and value targets [R, T] of a minibatch, asked anew where the method realigns at every step."""
        if self.algorithm.realign_every != "step":
            return Targets(part.targets.advantage[part.decision], part.targets.value_target[part.decision])
        with torch.no_grad():
            shape = part.decision.shape
            logp, value = now.logp.detach().view(shape), now.value.detach().view(shape)
            return self.algorithm.targets(self.batch.trajectories(self.policy, logp, value, part.rows))

    def _decisions(self, index: Tensor, now: Evaluation, advantage: Tensor, mask: Tensor) -> Decisions:
        batch, shape, flat = self.batch, index.shape, index.flatten()
        behaviour_logp = batch.behaviour_logp[index]
        if self.algorithm.proximal == "recompute":
            proximal_logp = batch.start.logp[index]
        elif self.algorithm.proximal == "ewma":
            obs, action = batch.obs[flat], batch.action[flat]
            proximal_logp = self.policy.logp_with(self.shadow[0], obs, action).view(shape)
        else:
            proximal_logp = behaviour_logp

        def analytic_kl(anchor: str) -> Tensor:
            if anchor == "proximal":
                mean, log_std = batch.start.mean[flat], batch.start.log_std
            else:
                mean = batch.rollout.behaviour_mean.flatten(0, 1)[flat]
                log_std = batch.rollout.behaviour_log_std.flatten(0, 1)[flat]
            return gaussian_kl(mean, log_std, now.mean, now.log_std).view(shape)

        return Decisions(
            target_logp=now.logp.view(shape),
            behaviour_logp=behaviour_logp,
            proximal_logp=proximal_logp,
            advantage=advantage,
            lag=batch.lag[index],
            gradient_lag=self.gradient_steps - batch.behaviour_step[index],
            mask=mask,
            state=self.state,
            analytic_kl=analytic_kl,
        )

    def value_loss(self, value: Tensor, target: Tensor, start: Tensor) -> Tensor:
        """½ E (V − v)², or CleanRL's clipped form around the learner's value at the start of the phase."""
        loss = (value - target).square()
        if self.spec.value_clip > 0:
            near = start + (value - start).clamp(-self.spec.value_clip, self.spec.value_clip)
            loss = torch.maximum(loss, (near - target).square())
        return 0.5 * loss.mean()
