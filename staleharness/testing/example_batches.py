"""Small records to try an algorithm on: given numbers, or random ones with a seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..batch import Decisions, Trajectories

Record = TypeVar("Record", Decisions, Trajectories)


def decisions(
    ratio: Any,
    advantage: Any,
    *,
    proximal_ratio: Any = 1.0,
    lag: Any = 0.0,
    gradient_lag: Any = 0.0,
    target_logp: Any = -1.0,
    mask: Any = 1.0,
    group: Any = None,
    outcome: Any = None,
    logit_norm: Any = None,
    reference_ratio: Any = None,
    closed_form: bool = True,
    dtype: torch.dtype = torch.float64,
) -> Decisions:
    """Decisions with given ratios: `ratio` w = π/μ, `proximal_ratio` π_prox/μ and `reference_ratio` π/π_ref.

    Nested lists or tensors that broadcast to [B, T]; `group` and `outcome` are [B]. `analytic_kl` is a stand-in,
    ½ (log π − log anchor)², or None without `closed_form`, as on tokens.
    """
    values = (ratio, advantage, proximal_ratio, lag, gradient_lag, target_logp, mask)
    optional = (1.0 if reference_ratio is None else reference_ratio, 0.0 if logit_norm is None else logit_norm)
    tensors = [torch.as_tensor(x, dtype=dtype) for x in (*values, *optional)]
    shape = np.broadcast_shapes(*(tuple(x.shape) for x in tensors))
    w, a, u, d, step_lag, logp, valid, r, norm = (x.expand(shape).clone() for x in tensors)
    behaviour_logp = logp - w.log()
    record = Decisions(
        *(logp, behaviour_logp, behaviour_logp + u.log(), a, d, step_lag, valid),
        group=None if group is None else torch.as_tensor(group, dtype=torch.int64),
        outcome=None if outcome is None else torch.as_tensor(outcome, dtype=dtype),
        logit_norm=None if logit_norm is None else norm,
        reference_logp=None if reference_ratio is None else logp - r.log(),
    )
    return with_gradient(record, closed_form)


def example_decisions(
    rows: int = 4, steps: int = 6, *, seed: int = 0, on_policy: bool = False, dtype: torch.dtype = torch.float32
) -> Decisions:
    """Random decisions with lags 0 to 5 and ratios to match (1 if `on_policy`), rows of unequal length.

    Everything that a method may need is there; rows 0 and 1 answer one prompt, rows 2 and 3 the next.
    """
    g = torch.Generator().manual_seed(seed)
    lag = torch.randint(0, 6, (rows, steps), generator=g).double()
    spread = torch.zeros_like(lag) if on_policy else 0.3 * lag + 0.1
    log_w, log_u = (spread * torch.randn(rows, steps, generator=g) for _ in range(2))
    advantage = torch.randn(rows, steps, generator=g)
    target_logp = -3.0 * torch.rand(rows, steps, generator=g)
    mask = _lengths(rows, steps, g)
    p = target_logp.exp()
    return decisions(
        ratio=log_w.exp(),
        advantage=advantage,
        proximal_ratio=log_u.exp(),
        lag=lag * (not on_policy),
        gradient_lag=(40.0 * lag + 7.0) * (not on_policy),
        target_logp=target_logp,
        mask=mask,
        group=torch.arange(rows) // 2,
        outcome=torch.randint(0, 2, (rows,), generator=g),
        logit_norm=p.square() + (1.0 - p).square() * torch.rand(rows, steps, generator=g),
        reference_ratio=(0.3 * torch.randn(rows, steps, generator=g)).exp(),
        dtype=dtype,
    )


def example_trajectories(
    rows: int = 4,
    steps: int = 8,
    *,
    seed: int = 0,
    on_policy: bool = False,
    discount: float = 0.9,
    gae_lambda: float = 0.8,
    dtype: torch.dtype = torch.float32,
) -> Trajectories:
    """Random rows of unequal length with terminations and truncations, and ratios from near 0 to 20."""
    g = torch.Generator().manual_seed(seed)

    def noise() -> Tensor:
        return torch.randn(rows, steps, generator=g, dtype=torch.float64)

    end = torch.randint(0, 6, (rows, steps), generator=g)  # 0 terminated, 1 truncated
    value, final_value = noise(), noise()
    next_value = torch.where(end <= 1, final_value, value.roll(-1, dims=1))
    next_value[:, -1] = final_value[:, -1]
    behaviour_logp = -3.0 * torch.rand(rows, steps, generator=g, dtype=torch.float64)
    log_w = torch.zeros_like(value) if on_policy else (1.5 * noise()).clamp(-4.0, 3.0)
    return Trajectories(
        reward=noise().to(dtype),
        discount=(discount * (end != 0)).to(dtype),
        continues=(end > 1).to(dtype),
        value=value.to(dtype),
        next_value=next_value.to(dtype),
        behaviour_logp=behaviour_logp.to(dtype),
        target_logp=(behaviour_logp + log_w).to(dtype),
        lag=torch.randint(0, 6, (rows, steps), generator=g).to(dtype) * (not on_policy),
        mask=_lengths(rows, steps, g).to(dtype),
        gae_lambda=gae_lambda,
    )


def gradient_coefficients(algorithm: Algorithm, d: Decisions) -> Tensor:
    """−∂(Σ loss)/∂ log π per decision [B, T]: the factor on the decision's ∇log π in gradient ascent.

    Any two methods can be compared by it: plain importance weighting gives wA, a clip or a mask 0, and a weight shared
    by a row one common factor. Padding gets 0. `d` is one minibatch: what a method does with its mean or its groups is
    included, the run's aggregation and step size are not. The state is `init_state()` unless `d` has one.
    """
    if not d.state:
        d = replace(d, state=algorithm.init_state())
    total = (algorithm.policy_loss(d).loss * d.mask).sum()
    (gradient,) = torch.autograd.grad(total, d.target_logp)
    return -gradient


def tensors_of(record: Decisions | Trajectories) -> dict[str, Tensor]:
    """Field name -> tensor."""
    return {f.name: x for f in fields(record) if isinstance(x := getattr(record, f.name), Tensor)}


def copy_of(record: Record) -> Record:
    """A copy of the record and of its tensors."""
    return _map(record, lambda x: x.clone())


def rows_of(record: Record, order: Tensor) -> Record:
    """The rows `order`, in that order."""
    return _map(record, lambda x: x[order])


def perturb(record: Record, where: Tensor) -> Record:
    """The record with other finite numbers at `where` [B, T], except in the mask."""

    def change(x: Tensor) -> Tensor:
        return torch.where(where, x * -1.7 + 0.3, x) if x.shape == where.shape else x

    return replace(_map(record, change), mask=record.mask)


def with_gradient(d: Decisions, closed_form: bool = True) -> Decisions:
    """The same decisions with a fresh leaf for `target_logp`, on which `analytic_kl` and `mean` depend too."""
    d = replace(d, target_logp=d.target_logp.detach().clone().requires_grad_())
    if d.mean is not None:
        d = _with_distribution(d)
    if not closed_form:
        return replace(d, analytic_kl=None)
    anchors = {"behaviour": d.behaviour_logp.clone(), "proximal": d.proximal_logp.clone()}
    return replace(d, analytic_kl=lambda anchor: 0.5 * (d.target_logp - anchors[anchor]).square())


def _map(record: Record, change: Callable[[Tensor], Tensor]) -> Record:
    changes: dict[str, Any] = {key: change(x.detach()) for key, x in tensors_of(record).items()}
    copy: Any = replace(record, **changes)
    if isinstance(copy, Decisions):
        return with_gradient(copy, copy.analytic_kl is not None)  # type: ignore[return-value]
    return copy  # type: ignore[no-any-return]


def _with_distribution(d: Decisions) -> Decisions:
    """The decisions with observations, actions and values, and with two normal distributions that give these actions
    the densities in `d`; gradient flows from `mean` to `target_logp`."""
    action = torch.stack([(7.0 * d.advantage).sin(), (5.0 * d.advantage).cos()], -1)

    def normal(logp: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation: the second action is at its mean, the first as far from its as `logp` says."""
        peak = logp.detach() + 1.0  # the log-density at the mean
        std = (0.5 * (-math.log(2 * math.pi) - peak)).exp()  # of both, so that its square is in the range of floats
        first = action[..., 0] - std * (2.0 * (peak - logp)).sqrt()
        return torch.stack([first, action[..., 1]], -1), torch.stack([std, std], -1)

    (mean, std), (behaviour_mean, behaviour_std) = normal(d.target_logp), normal(d.behaviour_logp)
    return replace(
        d,
        observation=torch.stack([d.advantage, d.lag, d.advantage + d.lag], -1),
        action=action,
        value=0.5 * d.advantage,
        mean=mean,
        std=std,
        behaviour_mean=behaviour_mean,
        behaviour_std=behaviour_std,
    )


def _lengths(rows: int, steps: int, generator: torch.Generator) -> Tensor:
    """A mask of rows with 1 to `steps` decisions; the first row is full."""
    lengths = torch.randint(1, steps + 1, (rows, 1), generator=generator)
    lengths[0] = steps
    return (torch.arange(steps) < lengths).double()


def ready_for(algorithm: Algorithm, d: Decisions) -> Decisions:
    """Decisions as in a run: with the method's state, and only those optional fields that it needs."""
    groups, norm, reference = (key in algorithm.needs for key in ("groups", "logit_norm", "reference"))
    if "distribution" in algorithm.needs:
        d = _with_distribution(d)
    return replace(
        d,
        state=MappingProxyType(dict(algorithm.init_state())),
        continues=torch.nn.functional.pad(d.mask[:, 1:], (0, 1)) if algorithm.time_order else None,  # 0 in the last
        group=d.group if groups else None,
        outcome=d.outcome if groups else None,
        logit_norm=d.logit_norm if norm else None,
        reference_logp=d.reference_logp if reference else None,
    )


def examples_for(algorithm: Algorithm, *args: Any, **values: Any) -> Decisions:
    """An example record (`example_decisions`), as a run would give it to this method."""
    return ready_for(algorithm, example_decisions(*args, **values))
