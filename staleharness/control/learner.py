"""Learning from one phase of data: epochs × minibatches, critic, entropy, optimiser. The same for every method."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..base.streams import stream
from ..batch import Decisions, Rollout, Targets
from ..errors import Diverged
from ..objectives import masked_mean, step_factor
from ..simulator.ewma import ewma_update
from .phase_batch import PhaseBatch
from .policy import Evaluation, MLPPolicy, gaussian_kl
from .spec import ControlSpec
from .staleness import after_training, explained_variance, lag_of, staleness_of_data


class Learner:
    """The target policy's training. Holds the optimiser, the method's state and, where asked for, the shadow."""

    def __init__(self, spec: ControlSpec, policy: MLPPolicy, algorithm: Algorithm) -> None:
        self.spec, self.policy, self.algorithm = spec, policy, algorithm
        self.optimizer = torch.optim.Adam(
            [policy.flat], lr=spec.learning_rate, eps=spec.adam_epsilon, fused=True
        )
        self.gradient_steps = 0
        self.state = algorithm.init_state()
        self.shadow = policy.actor_flat.detach().clone()
        self.shadow_weight = 1.0

    def train(self, rollout: Rollout, reward: Tensor, phase: int) -> dict[str, Any]:
        """All epochs over one phase's data; `reward` [B, T] is already scaled. Returns the phase's diagnostics.

        Raises `Diverged` when a loss, a gradient or a parameter is no longer finite.
        """
        spec, realign = self.spec, self.algorithm.realign_every
        rate = spec.learning_rate * ((1.0 - phase / spec.phases) if spec.anneal_learning_rate else 1.0)
        batch = PhaseBatch.prepare(spec, self.policy, rollout, reward, phase)
        first = self._targets(batch, batch.start)
        report: dict[str, Any] = lag_of(batch, self.gradient_steps) | staleness_of_data(batch)
        report["explained_variance"] = explained_variance(batch.start.value, first.value_target)
        log: list[dict[str, Tensor]] = []
        for epoch in range(spec.epochs):
            targets = first
            if realign == "epoch" and epoch > 0:
                targets = self._targets(batch, self.policy.evaluate_now(batch.obs, batch.action))
            rng = stream(spec.seed, "minibatch", phase, epoch)
            for rows, index in batch.minibatches(spec.minibatches, realign == "step", rng):
                log.append(self._step(batch, targets, rows, index, rate))
        report |= self._summarise(log, phase)
        report |= {"learning_rate": rate, "gradient_steps": self.gradient_steps}
        own = {key.removeprefix("algorithm/"): v for key, v in report.items() if key.startswith("algorithm/")}
        self.state = self.algorithm.next_state(self.state, own)
        report |= {f"algorithm/{key}": value for key, value in self.state.items()}
        return report | after_training(batch, self.policy.evaluate_now(batch.obs, batch.action).logp)

    def _targets(self, batch: PhaseBatch, now: Evaluation) -> Targets:
        """The algorithm's targets for the whole batch, flat [N], under the learner as evaluated in `now`."""
        with torch.no_grad():
            shown = batch.trajectories(self.policy, now.logp.view(batch.shape), now.value.view(batch.shape))
            asked = self.algorithm.targets(shown)
        return Targets(asked.advantage.flatten(), asked.value_target.flatten())

    def _step(
        self, batch: PhaseBatch, targets: Targets, rows: Tensor, index: Tensor, rate: float
    ) -> dict[str, Tensor]:
        """One gradient step on the decisions at `index` [R, T]; returns scalars."""
        spec, policy, shape = self.spec, self.policy, index.shape
        flat = index.flatten()
        now = policy.evaluate(batch.obs[flat], batch.action[flat])
        now.logp.retain_grad()
        if self.algorithm.realign_every == "step":
            with torch.no_grad():
                logp, value = now.logp.detach().view(shape), now.value.detach().view(shape)
                asked = self.algorithm.targets(batch.trajectories(policy, logp, value, rows))
        else:
            asked = Targets(targets.advantage[index], targets.value_target[index])
        mask = torch.ones(shape, device=policy.device)
        advantage = asked.advantage
        if spec.normalise_advantage and self.algorithm.normalise_advantage:
            advantage = normalise(advantage, mask)
        decisions = self._decisions(batch, index, now, advantage, mask)
        answer = self.algorithm.policy_loss(decisions)
        policy_loss = masked_mean(answer.loss, mask)
        value_loss = self._value_loss(now.value, asked.value_target.flatten(), batch.start.value[flat])
        entropy = now.entropy.mean()
        policy.flat_gradient.zero_()
        torch.autograd.backward(policy_loss - spec.entropy_coef * entropy + spec.value_coef * value_loss)
        norm = self._optimise(
            rate * self.algorithm.step_scale(decisions) * step_factor(decisions, spec.step_size)
        )
        with torch.no_grad():
            # clipped: the method left a decision no policy gradient although it had an advantage
            pull = now.logp.grad if now.logp.grad is not None else torch.zeros_like(now.logp)
            clipped = ((pull.view(shape) == 0) & (advantage != 0)).float()
            own = {f"algorithm/{key}": masked_mean(x.float(), mask) for key, x in answer.diagnostics.items()}
            shared = {
                "policy_loss": policy_loss.detach(),
                "value_loss": value_loss.detach(),
                "entropy": entropy.detach(),
                "grad_norm": norm,
                "clipped": masked_mean(clipped, mask),
            }
        return shared | own

    def _decisions(
        self, batch: PhaseBatch, index: Tensor, now: Evaluation, advantage: Tensor, mask: Tensor
    ) -> Decisions:
        shape, flat = index.shape, index.flatten()
        behaviour_logp = batch.behaviour_logp[index]
        if self.algorithm.proximal == "recompute":
            proximal_logp = batch.start.logp[index]
        elif self.algorithm.proximal == "ewma":
            proximal_logp = self.policy.logp_with(self.shadow, batch.obs[flat], batch.action[flat]).view(
                shape
            )
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

    def _value_loss(self, value: Tensor, target: Tensor, start: Tensor) -> Tensor:
        """½ E (V − v)², or CleanRL's clipped form around the learner's value at the start of the phase."""
        loss = (value - target).square()
        if self.spec.value_clip > 0:
            near = start + (value - start).clamp(-self.spec.value_clip, self.spec.value_clip)
            loss = torch.maximum(loss, (near - target).square())
        return 0.5 * loss.mean()

    def _optimise(self, rate: float) -> Tensor:
        """Clip the joint gradient norm, step Adam, update the shadow; returns the norm before clipping."""
        gradient = self.policy.flat_gradient
        norm: Tensor = torch.linalg.vector_norm(gradient)
        gradient.mul_((self.spec.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.step()
        self.gradient_steps += 1
        if self.algorithm.proximal == "ewma":
            decay = self.algorithm.ewma_decay
            self.shadow_weight = ewma_update(
                [self.shadow], [self.policy.actor_flat], self.shadow_weight, decay
            )
        return norm

    def _summarise(self, log: list[dict[str, Tensor]], phase: int) -> dict[str, float]:
        """Means over the phase's gradient steps; raises `Diverged` naming what stopped being finite, and when."""
        series = {key: torch.stack([entry[key] for entry in log]) for key in log[0]}
        bad = {
            key: int((~torch.isfinite(x)).nonzero()[0])
            for key, x in series.items()
            if not torch.isfinite(x).all()
        }
        if bad:
            where = min(bad, key=bad.__getitem__)  # the first of those that went first
            raise Diverged(f"{where} is not finite at gradient step {bad[where] + 1} of phase {phase}")
        if not torch.isfinite(self.policy.flat).all():
            raise Diverged(f"a parameter is not finite after phase {phase}")
        means = {key: float(x.mean()) for key, x in series.items()}
        return means | {
            "clipped_first": float(series["clipped"][0]),
            "clipped_last": float(series["clipped"][-1]),
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            "flat": self.policy.flat.detach(),
            "optimizer": self.optimizer.state_dict(),
            "gradient_steps": self.gradient_steps,
            "state": dict(self.state),
            "shadow": self.shadow,
            "shadow_weight": self.shadow_weight,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        with torch.no_grad():
            self.policy.flat.copy_(state["flat"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.shadow.copy_(state["shadow"])
        self.gradient_steps, self.state = state["gradient_steps"], state["state"]
        self.shadow_weight = state["shadow_weight"]


def normalise(advantage: Tensor, mask: Tensor) -> Tensor:
    """Zero mean and unit standard deviation (n − 1) over the decisions where `mask` is 1."""
    centred = (advantage - masked_mean(advantage, mask)) * mask
    count = mask.sum()
    std = (centred.square().sum() / (count - 1.0).clamp(min=1.0)).sqrt()
    return centred / (std + 1e-8)
