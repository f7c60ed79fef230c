"""Learning from one phase of control: shuffled decisions, critic and entropy besides the method's own loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..algorithm import Algorithm, defines, takes_rows
from ..base.streams import stream
from ..batch import Decisions, PolicyLoss, Rollout, Targets, Values
from ..errors import UserError
from ..objectives import masked_mean
from ..tokens.token_metrics import tail_masks
from ..training.base_learner import Learner, Log, MinibatchLoss, normalise
from ..training.hook_checks import loss_of, targets_of, value_gradient_of, value_loss_of
from ..training.lag_stats import LearnerRows, backward_lag_metrics
from ..training.optimiser import AdamW
from .compiled_loss import CompiledLoss
from .functional_mlp import SIZES
from .phase_batch import PhaseBatch, explained_variance, staleness_after_training, staleness_of_data
from .policy import Evaluation, MLPPolicy, OutputGradient
from .spec import ControlSpec, no_closed_form


class ControlData(NamedTuple):
    """Data that a phase trains on."""

    rollout: Rollout
    reward: Tensor  # [B, T] scaled
    fresh_obs: Tensor  # [N, D] raw observations collected in this phase, and in no other phase's data
    loss_mask: Tensor | None = None  # [B, T] bool, False: masked out of the loss; None: all are kept


class Columns(NamedTuple):
    """Columns of each decision that are fixed during the phase: all [N], or all [B, T] of a minibatch."""

    behaviour_logp: Tensor
    lag: Tensor
    gradient_lag: Tensor
    start_logp: Tensor
    start_value: Tensor
    advantage: Tensor
    value_target: Tensor
    version_logp: Tensor | None = None


class ControlMinibatch(NamedTuple):
    """A minibatch: R rows of T decisions, or N single ones ([N, 1])."""

    decision: Tensor  # [B, T] into the phase's flat decisions
    fixed: Columns


class ControlLearner(Learner[ControlData, ControlMinibatch]):
    """Epochs of shuffled minibatches. The method's loss is taken on log-probabilities and the critic's on values, each
    as if these were given; the policy then backpropagates both gradients through its networks."""

    spec: ControlSpec
    reports_step_scale: ClassVar[bool] = False

    def __init__(self, spec: ControlSpec, policy: MLPPolicy, algorithm: Algorithm) -> None:
        self.policy = policy
        super().__init__(spec, algorithm, [policy.flat], [policy.actor_flat])
        self.full_masks: dict[torch.Size, tuple[Tensor, Tensor]] = {}
        self.in_rows, self.own_value_loss = takes_rows(algorithm), defines(algorithm, "value_loss")
        # of a minibatch without masked or replayed rows, whose number varies: only this size is compiled
        rows = (spec.num_envs if self.in_rows else spec.steps_per_phase) // spec.minibatches
        compiles = spec.learner == "compiled" and "distribution" not in algorithm.needs
        self.compiled_loss = CompiledLoss(algorithm, (rows, rows + 1)) if compiles else None

    def make_optimizer(self) -> AdamW:
        return self.policy.make_optimizer(self.spec)

    def policy_gradients(self) -> list[Tensor]:
        return [self.policy.flat_gradient[: self.policy.actor_size]]

    def begin(self, data: ControlData, phase: int) -> dict[str, Any]:
        self.phase = phase
        self.batch = batch = PhaseBatch.prepare(self.spec, self.policy, data.rollout, data.reward, phase)
        self.loss_mask = None if data.loss_mask is None else data.loss_mask.flatten()
        self.targets = self._targets(batch.start)
        self.rows = LearnerRows(data.rollout.version, data.rollout.gradient_step, trained=data.loss_mask)
        report: dict[str, Any] = backward_lag_metrics(self.rows, phase, self.gradient_steps) | staleness_of_data(batch)
        return report | {"explained_variance": explained_variance(batch.start.value, self.targets.value_target)}

    def minibatches(self, epoch: int) -> Iterator[ControlMinibatch]:
        batch, realign, count = self.batch, self.algorithm.realign_every, self.spec.minibatches
        targets = self.targets
        if realign == "epoch" and epoch > 0:
            targets = self._targets(self.policy.evaluate(batch.obs, batch.action))
        fixed = Columns(
            batch.behaviour_logp,
            batch.lag,
            self.gradient_steps - batch.behaviour_step,
            batch.start.logp,
            batch.start.value,
            targets.advantage,
            targets.value_target,
            batch.version_logp,
        )
        rng = stream(self.spec.seed, "minibatch", self.phase, epoch)
        decisions = batch.minibatches(count, self.in_rows, rng, self.loss_mask)
        # all at once: a gather of one minibatch costs hardly less
        permuted_columns = torch.stack([x for x in fixed if x is not None])[:, torch.cat(decisions)]
        steps_before = np.repeat(np.arange(count, dtype=np.float32), [len(d) for d in decisions])
        permuted_columns[Columns._fields.index("gradient_lag")] += torch.from_numpy(steps_before).to(batch.lag)[:, None]
        columns = [Columns(*x.unbind()) for x in permuted_columns.tensor_split(count, 1)]
        advantages: Sequence[Tensor] = [c.advantage for c in columns]
        if realign != "step":  # else each step computes its own
            advantages = self._normalise(advantages)
        for decision, fixed, advantage in zip(decisions, columns, advantages, strict=True):
            yield ControlMinibatch(decision, fixed._replace(advantage=advantage))

    def trained_by(self, minibatches: Sequence[ControlMinibatch]) -> Tensor:
        trained = torch.zeros(self.batch.reward.shape, device=self.policy.device)
        for minibatch in minibatches:
            trained.view(-1)[minibatch.decision.flatten()] = 1.0
        return trained

    def end(self) -> dict[str, Any]:
        batch = self.batch
        del self.batch, self.targets  # the next phase collects before it learns: not two phases' data at once
        return staleness_after_training(batch, self.policy.evaluate(batch.obs, batch.action).logp)

    @torch.no_grad()
    def gradient(self, minibatch: ControlMinibatch) -> MinibatchLoss:
        spec, policy, batch = self.spec, self.policy, self.batch
        flat = minibatch.decision.flatten()
        now = policy.forward(batch.obs, batch.action, flat)
        targets = self._targets_of(minibatch, now)
        advantage, (mask, share) = targets.advantage, self._full_mask(minibatch.decision.shape)
        decisions, answer, grad_logp = self._policy_loss(minibatch, now, advantage, mask, share)
        reaches_policy = any(x is not None for x in (grad_logp, now.mean.grad, now.log_std.grad))
        logp_gradient = torch.zeros_like(now.logp) if grad_logp is None else grad_logp
        if self.own_value_loss:
            critic_loss, grad_value = self._own_value_loss(minibatch, now, targets.value_target, mask)
        else:
            target, start = targets.value_target, minibatch.fixed.start_value
            critic_loss, grad_value = policy.value_loss(now.value, target, start, spec.value_clip, spec.value_coef)
        grad_entropy: Tensor | float = 0.0
        if spec.entropy_coef:  # with respect to log σ: summed over decisions, as autograd rounds it
            grad_entropy = (torch.full((len(flat),), -spec.entropy_coef, device=policy.device) / len(flat)).sum()
        gradient_size = logp_gradient
        if "distribution" in self.algorithm.needs and now.mean.grad is not None:
            gradient_size = gradient_size.abs() + now.mean.grad.abs().sum(-1)
        policy.backward(OutputGradient(logp_gradient, grad_value, grad_entropy, now.mean.grad, now.log_std.grad))
        log = {
            "policy_loss": answer.loss.detach(),
            "value_loss": critic_loss,
            "entropy": policy.mean_entropy(now),
            "clipped": gradient_size.view_as(mask),  # see `_summarise`
            "advantage": advantage,
            **tail_masks(decisions),
        }
        return MinibatchLoss(decisions, answer, log, reaches_policy)

    def _summarise(self, steps: Sequence[tuple[Log, Tensor]], phase: int) -> dict[str, float]:
        # clipped: the method gave a decision no policy gradient although it had an advantage; here, all steps at once
        gradient_size, advantage = (torch.cat([log[name] for log, _ in steps]) for name in ("clipped", "advantage"))
        is_clipped = ((gradient_size == 0) & (advantage != 0)).split([len(mask) for _, mask in steps])
        for (log, _), of_step in zip(steps, is_clipped, strict=True):
            log["clipped"] = of_step
            del log["advantage"]
        return super()._summarise(steps, phase)

    def _full_mask(self, shape: torch.Size) -> tuple[Tensor, Tensor]:
        """The mask [B, T] of a minibatch, ones, and the share of each decision in its mean."""
        if shape not in self.full_masks:
            if len(self.full_masks) == SIZES:  # rows that are masked out differ from phase to phase
                del self.full_masks[next(iter(self.full_masks))]
            mask = torch.ones(shape, device=self.policy.device)
            self.full_masks[shape] = mask, mask / mask.numel()
        return self.full_masks[shape]

    def _policy_loss(
        self, minibatch: ControlMinibatch, now: Evaluation, advantage: Tensor, mask: Tensor, share: Tensor
    ) -> tuple[Decisions, PolicyLoss, Tensor | None]:
        """The loss and its gradient [N] with respect to log π, or None; mean and log σ keep their own in `grad`."""
        if self.compiled_loss is not None:
            decisions = self._decisions(minibatch, now, advantage, mask)
            if (outputs := self.compiled_loss(decisions)) is not None:
                return decisions, outputs[0], outputs[1].flatten().contiguous()
        with torch.enable_grad():
            for leaf in (now.logp, now.mean, now.log_std):  # inputs that a method's loss may depend on
                leaf.requires_grad_()
            decisions = self._decisions(minibatch, now, advantage, mask)
            answer = loss_of(self.algorithm, decisions)
            if answer.loss.requires_grad:
                torch.autograd.backward(answer.loss, share)
        return decisions, answer, now.logp.grad

    def _own_value_loss(
        self, minibatch: ControlMinibatch, now: Evaluation, target: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The method's value loss [], and the gradient with respect to V [N] of `value_coef` times that."""
        fixed = minibatch.fixed
        inputs = Values(
            value=now.value.view_as(mask).detach().requires_grad_(),
            start=fixed.start_value,
            target=target,
            behaviour_logp=fixed.behaviour_logp,
            target_logp=now.logp.detach().view_as(mask),
            lag=fixed.lag,
            mask=mask,
            state=self.state,
            progress=self.progress,
        )
        with torch.enable_grad():
            loss = masked_mean(value_loss_of(self.algorithm, inputs), mask)
            if loss.requires_grad:
                (self.spec.value_coef * loss).backward()
        return loss.detach(), value_gradient_of(self.algorithm, inputs).flatten().contiguous()

    def _targets(self, now: Evaluation) -> Targets:
        """The algorithm's targets for the whole batch, flat [N], under the learner as evaluated in `now`."""
        batch = self.batch
        with torch.no_grad():
            inputs = batch.trajectories(self.policy, now.logp.view_as(batch.reward), now.value.view_as(batch.reward))
            targets = targets_of(self.algorithm, inputs)
        return Targets(targets.advantage.flatten(), targets.value_target.flatten())

    def _targets_of(self, minibatch: ControlMinibatch, now: Evaluation) -> Targets:
        """Advantages, normalised, and value targets [B, T] of a minibatch; recomputed with `realign_every=step`."""
        if self.algorithm.realign_every != "step":
            return Targets(minibatch.fixed.advantage, minibatch.fixed.value_target)
        shape = minibatch.decision.shape
        rows = minibatch.decision[:, 0] // shape[1]
        inputs = self.batch.trajectories(self.policy, now.logp.view(shape), now.value.view(shape), rows)
        targets = targets_of(self.algorithm, inputs)
        (advantage,) = self._normalise([targets.advantage])
        return Targets(advantage, targets.value_target)

    def _normalise(self, advantages: Sequence[Tensor]) -> Sequence[Tensor]:
        """Advantages [B, T] of each minibatch as used in the loss; computed together where all are of one size."""
        if not (self.spec.normalise_advantage and self.algorithm.normalise_advantage):
            return advantages
        correction = self.spec.advantage_correction
        if len({a.shape for a in advantages}) > 1:
            return [normalise(a, torch.ones_like(a), correction) for a in advantages]
        together = torch.stack(list(advantages))
        return normalise(together, torch.ones_like(together), correction).unbind()

    def _decisions(self, minibatch: ControlMinibatch, now: Evaluation, advantage: Tensor, mask: Tensor) -> Decisions:
        batch, fixed, flat = self.batch, minibatch.fixed, minibatch.decision.flatten()
        shape, proximal = minibatch.decision.shape, self.algorithm.proximal
        proximal_logp = fixed.behaviour_logp
        if proximal == "recompute":
            proximal_logp = fixed.start_logp
        elif proximal == "ewma":
            shadow = self.policy.actor_with(self.shadow[0], batch.obs[flat])
            proximal_logp = self.policy.distribution.logp(batch.action[flat], *shadow).view(shape)

        def analytic_kl(anchor: str) -> Tensor:
            if anchor == "proximal" and proximal == "recompute":
                mean, log_std = batch.start.mean[flat], batch.start.log_std
            elif anchor == "proximal" and proximal == "ewma":
                mean, log_std = self.policy.actor_with(self.shadow[0], batch.obs[flat])
            else:
                if self.spec.mixes_versions:
                    raise UserError(no_closed_form(self.algorithm))
                mean = batch.rollout.behaviour_mean.flatten(0, 1)[flat]
                log_std = batch.rollout.behaviour_log_std.flatten(0, 1)[flat]
            return self.policy.distribution.kl(mean, log_std, now.mean, now.log_std).view(shape)

        return Decisions(
            target_logp=now.logp.view(shape),
            behaviour_logp=fixed.behaviour_logp,
            proximal_logp=proximal_logp,
            advantage=advantage,
            lag=fixed.lag,
            gradient_lag=fixed.gradient_lag,
            mask=mask,
            state=self.state,
            progress=self.progress,
            continues=batch.continues.flatten()[minibatch.decision] if self.algorithm.time_order else None,
            analytic_kl=analytic_kl,
            version_logp=fixed.version_logp,
            **(self._distributions(minibatch, now) if "distribution" in self.algorithm.needs else {}),
        )

    def _distributions(self, minibatch: ControlMinibatch, now: Evaluation) -> dict[str, Tensor]:
        """Fields of `Decisions` for a method that needs "distribution"."""
        rollout, shape, flat = self.batch.rollout, minibatch.decision.shape, minibatch.decision.flatten()
        behaviour: dict[str, Tensor] = {}
        if not self.spec.mixes_versions:
            log_std = rollout.behaviour_log_std.flatten(0, 1)[flat]
            behaviour["behaviour_mean"] = rollout.behaviour_mean.flatten(0, 1)[flat].view(*shape, -1)
            behaviour["behaviour_std"] = log_std.exp().view(*shape, log_std.shape[-1])
        return {
            "observation": self.batch.obs[flat].view(*shape, -1),
            "action": self.batch.action[flat].view(*shape, -1),
            "value": now.value.detach().view(shape),
            "mean": now.mean.view(*shape, -1),
            "std": now.log_std.exp().expand(*shape, -1),
            **behaviour,
        }
