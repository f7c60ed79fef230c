"""Records that pass between collector, learner and algorithm: collected data, inputs of a method and its outputs.

A *decision* is one sampled action with a log-probability: a simulator step, or a token. A row is one
environment's decisions in one phase, or one completion; tensors are [B, T] with a mask unless stated otherwise. A
shuffled minibatch of control data is [N, 1]. Code after the collector treats both kinds alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Rollout:
    """One phase as the collector recorded it: B rows (environments) of T decisions. The learner recomputes none of
    it."""

    obs: Tensor
    """[B, T, D] raw observations, float32."""
    action: Tensor
    """[B, T, A] as sampled, before the environment clips it; [B, T, 1] index of a discrete action."""
    behaviour_logp: Tensor
    """[B, T] log μ(a|s) under the version that acted (or the mixture, where asked for)."""
    behaviour_mean: Tensor
    """[B, T, A] mean of the Gaussian that acted, or the logits of A discrete actions."""
    behaviour_log_std: Tensor
    """[B, T, A]; [B, T, 0] for discrete actions."""
    version: Tensor
    """[B, T] int64, phases done when the acting version was stored."""
    gradient_step: Tensor
    """[B, T] int64, optimiser steps done when it was stored."""
    reward: Tensor
    """[B, T] raw, float64."""
    terminated: Tensor
    """[B, T] bool."""
    truncated: Tensor
    """[B, T] bool."""
    final_obs: Tensor
    """[M, D] true next observation where that is not the next column: at episode ends and at the end of each row."""
    final_row: Tensor
    """[M] int64, row of each final observation."""
    final_step: Tensor
    """[M] int64, step of each final observation within its row."""
    behaviour_value: Tensor
    """[B, T, 1] V(s) by the critic of the version that acted; [B, T, 0] where it has none."""
    final_value: Tensor
    """[M, 1] likewise at `final_obs`; [M, 0]."""
    # The next three are set only under MISMATCH, see docs/mismatch.md.
    sampler_logp: Tensor | None = None
    """[B, T] log-probability as the copy that acted reports it."""
    version_logp: Tensor | None = None
    """[B, T] log-probability under the version that it is a copy of."""
    version_entropy: Tensor | None = None
    """[B, T] entropy of that version, nats."""

    @property
    def columns(self) -> dict[str, Tensor]:
        """Fields by name, without those that are None."""
        return {f.name: x for f in fields(self) if (x := getattr(self, f.name)) is not None}

    def to(self, device: torch.device) -> Rollout:
        """The same on a device."""
        return Rollout(**{name: x.to(device) for name, x in self.columns.items()})

    def rows(self, index: Tensor) -> Rollout:
        """The rows at `index` [R] (sorted), in that order."""
        keep = (self.final_row[:, None] == index[None, :]).nonzero()
        cut = {name: getattr(self, name)[keep[:, 0]] for name in ("final_obs", "final_step", "final_value")}
        dense = {name: x[index] for name, x in self.columns.items() if not name.startswith("final_")}
        return Rollout(**dense, **cut, final_row=keep[:, 1])


@dataclass(frozen=True)
class Completions:
    """One generation round as it was sampled and graded: B completions of up to T tokens, group by group.

    The learner recomputes none of it. Prompts are padded on the left, completions on the right.
    """

    prompt: Tensor
    """[B, P] token ids."""
    prompt_mask: Tensor
    """[B, P] int64, 1 for a token."""
    token: Tensor
    """[B, T] token ids."""
    mask: Tensor
    """[B, T] float, 1 for a sampled token, the ending one included."""
    behaviour_logp: Tensor
    """[B, T] log μ of each token: `sampler_logp` or `version_logp`, as the run's `behaviour` says."""
    version: Tensor
    """[B, T] int64, phases done when that version was stored."""
    gradient_step: Tensor
    """[B, T] int64, optimiser steps done when it was stored."""
    group: Tensor
    """[B] int64, completions of one prompt share it."""
    outcome: Tensor
    """[B] verifiable reward: 1 or 0, for right or wrong, unless the task grades with another number."""
    truncated: Tensor
    """[B] bool, cut at the limit."""
    unparsed: Tensor
    """[B] bool, no answer could be read."""
    kept: Tensor | None = None
    """[B, T] float, 0: the token is masked out of the loss; None: all are kept."""
    sampler_logp: Tensor | None = None
    """[B, T] as the engine that sampled the token reports it; None: it reports none."""
    version_logp: Tensor | None = None
    """[B, T] under the version that acted, by the trainer's arithmetic."""
    version_entropy: Tensor | None = None
    """[B, T] entropy of that version, likewise, in nats."""
    experts: Tensor | None = None
    """[B, P + T, layers, k] int16, experts that the learner's passes go through; −1: those that it chooses itself. Only
    under `routing_replay`."""
    routing_differs: Tensor | None = None
    """[B, T] share of layers in which sampler and trainer choose different experts. Only for a mixture of experts."""

    def rewards_differ(self, completions: int) -> Tensor:
        """[G] bool: true if a group's `completions` rows differ in reward, and so give a signal beyond its baseline."""
        rewards = self.outcome.view(-1, completions)
        return (rewards != rewards[:, :1]).any(1)

    def rows(self, index: Tensor) -> Completions:
        """The completions at `index` [R], in that order."""
        columns = {f.name: x for f in fields(self) if (x := getattr(self, f.name)) is not None}
        return Completions(**{name: x[index] for name, x in columns.items()})


@dataclass(frozen=True)
class Trajectories:
    """Rows of decisions in time order, as `Algorithm.targets` sees them: tensors [B, T] without gradient.

    `discount` is zero only where the episode terminated; `continues` is zero wherever the next decision is not this
    one's successor (terminated or truncated).
    """

    reward: Tensor
    """r_t, scaled by the run's shared return statistic."""
    discount: Tensor
    """γ, and 0 where terminated."""
    continues: Tensor
    """1, and 0 where terminated or truncated."""
    value: Tensor
    """V(s_t) of the learner's critic when `targets` is called."""
    next_value: Tensor
    """V of the true next observation (the final one where the episode ended), same critic."""
    behaviour_logp: Tensor
    """log μ(a_t|s_t), fixed when the data were made."""
    target_logp: Tensor
    """log π(a_t|s_t) of the learner when `targets` is called (π_T if once per phase)."""
    lag: Tensor
    """Backward lag: version of the target policy less that of the behaviour policy, in phases."""
    mask: Tensor
    """1 for a decision, 0 for padding."""
    gae_lambda: float
    """λ of generalised advantage estimation."""


@dataclass(frozen=True)
class Targets:
    """Advantage and value target of each decision, both [B, T]."""

    advantage: Tensor
    """[B, T] before any normalisation."""
    value_target: Tensor
    """[B, T] what the critic is trained towards."""


class Progress(NamedTuple):
    """Position in a run: phase, epoch of the phase and gradient step of the epoch, each from 0, and their totals.

    Phases that fill the buffer before the run's budget are phase 0."""

    phase: int = 0
    phases: int = 1
    epoch: int = 0
    epochs: int = 1
    step: int = 0
    steps: int = 1

    @property
    def fraction(self) -> float:
        """Fraction of the whole run that is done, in [0, 1)."""
        return (self.phase + (self.epoch + self.step / self.steps) / self.epochs) / self.phases


BEGINNING = Progress()


@dataclass(frozen=True)
class Decisions:
    """One minibatch as `Algorithm.policy_loss` sees it. Tensors are [B, T] unless stated otherwise; gradient flows
    only through `target_logp`, `mean`, `std`, the learned tensors of `state` and what `analytic_kl` returns.
    """

    target_logp: Tensor
    """log π_θ(a|s), with gradient."""
    behaviour_logp: Tensor
    """log μ(a|s), fixed when the data were made."""
    proximal_logp: Tensor
    """Log-probability under the anchor that `Algorithm.proximal` names; the behaviour policy by default."""
    advantage: Tensor
    """Advantage in the loss (normalised if the run normalises)."""
    lag: Tensor
    """Backward lag d in phases (float)."""
    gradient_lag: Tensor
    """Gradient steps between the behaviour version and the current learner (float)."""
    mask: Tensor
    """1 for a decision, 0 for padding."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The algorithm's own state (`init_state`)."""
    progress: Progress = BEGINNING
    """Position in the run: phase, epoch and step."""
    continues: Tensor | None = None
    """1 where the next column is the next decision of the same episode; only for a method with `time_order`, on
    control."""
    analytic_kl: Callable[[str], Tensor] | None = None
    """Maps "behaviour" or "proximal", the anchor of `proximal_logp`, to KL[anchor ‖ π_θ] per decision; None where there
    is no closed form (tokens). A method that cannot do without it has "closed_form" among its `needs`."""
    # The next four are set only for a method that `needs` them, and only on tasks that have them (`algorithm.NEEDS`).
    group: Tensor | None = None
    """[B] int64, the prompt that the row answers; a minibatch has whole groups."""
    outcome: Tensor | None = None
    """[B] reward of the whole row, before any baseline."""
    logit_norm: Tensor | None = None
    """Σ_v π_θ(v)² over the vocabulary, without gradient."""
    reference_logp: Tensor | None = None
    """Log-probability under the fixed reference policy, without gradient."""
    version_logp: Tensor | None = None
    """Log-probability under the version that acted, by the trainer's arithmetic; None: exactly `behaviour_logp`."""
    # The rest are set only for a method that `needs` "distribution", on control.
    observation: Tensor | None = None
    """[B, T, D] as recorded, before the policy normalises it."""
    action: Tensor | None = None
    """[B, T, A]; for discrete actions the index, A = 1."""
    value: Tensor | None = None
    """V(s) of the critic being trained, without gradient."""
    mean: Tensor | None = None
    """[B, T, A] mean of π_θ with gradient; logits of discrete actions."""
    std: Tensor | None = None
    """[B, T, A] standard deviation of π_θ with gradient; [B, T, 0] for discrete actions."""
    behaviour_mean: Tensor | None = None
    """[B, T, A] mean of μ; logits of discrete actions; None where μ is a mixture of versions."""
    behaviour_std: Tensor | None = None
    """[B, T, A] standard deviation of μ; [B, T, 0] for discrete actions; None where μ is a mixture of versions."""


@dataclass(frozen=True)
class Values:
    """One minibatch as `Algorithm.value_loss` sees it: tensors [B, T], with gradient through `value` only."""

    value: Tensor
    """V(s) of the critic being trained."""
    start: Tensor
    """V(s) of the critic at the start of the phase."""
    target: Tensor
    """The value target that `Algorithm.targets` gave."""
    behaviour_logp: Tensor
    """log μ(a|s), recorded when sampled."""
    target_logp: Tensor
    """log π(a|s) of the current learner."""
    lag: Tensor
    """Backward lag d in phases (float)."""
    mask: Tensor
    """1 for a decision, 0 for padding."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The algorithm's own state (`init_state`)."""
    progress: Progress = BEGINNING
    """Position in the run: phase, epoch and step."""


@dataclass(frozen=True)
class PolicyLoss:
    """Output of `Algorithm.policy_loss`: loss per decision [B, T] to be minimised, and named diagnostics.

    Both are of the inputs' dtype: a comparison is reported as `(ratio > cap).to(ratio.dtype)`. The learner masks and
    averages both, so that aggregation is a setting of the run, not of a method, and detaches the diagnostics. Each
    mechanism of a method reports, as 0 or 1, which decisions it touched. Some names are shared by all methods:

        clipped     the trust region (PPO's clip, VACO's filter, a mask) took the decision's gradient away
        truncated   the importance weight was cut to its cap; the gradient stays
        masked      of those clipped, the ones that a rule on importance ratios rejected
        vetoed      of those clipped, the ones whose whole row was rejected for one impossible decision in it

    and one is a weight: `behaviour_weight`, the π_prox/μ that the loss was multiplied by.
    """

    loss: Tensor
    """[B, T] loss of each decision."""
    diagnostics: dict[str, Tensor] = field(default_factory=dict)
    """Name -> [B, T], or [] for one number per minibatch."""
