"""Methods, rows to try them on, and what a formula speaks of in those rows, as numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions
from staleharness.testing import decisions, example_decisions, gradient_coefficients
from staleharness.testing.example_batches import with_gradient

Array = NDArray[np.float64]


def make(name: str, **options: Any) -> Algorithm:
    return ALGORITHMS[name](**options)


def examples(seed: int, spread: float, closed_form: bool = False) -> Decisions:
    """Rows of unequal length with holes, ratios to the power `spread`; groups of 2, one of them alone."""
    d = example_decisions(7, 9, seed=seed, dtype=torch.float64)
    holes = torch.rand(d.mask.shape, generator=torch.Generator().manual_seed(seed)) > 0.15
    holes[:, 0] = True
    target_logp = d.target_logp.detach()
    behaviour_logp = target_logp + spread * (d.behaviour_logp - target_logp)
    behaviour_logp = behaviour_logp.clamp(max=-1e-3)  # a token's probability
    proximal_logp = target_logp + spread * (d.proximal_logp - target_logp)
    changed = replace(d, mask=d.mask * holes, behaviour_logp=behaviour_logp, proximal_logp=proximal_logp)
    return with_gradient(changed, closed_form)


def assert_pulls(algorithm: Algorithm, *rows: tuple[float, float, float], **given: Any) -> None:
    """Rows are w = π/μ, A and the coefficient that ∇log π gets (−∂loss/∂log π), all in one completion."""
    d = decisions([[w for w, _, _ in rows]], [[a for _, a, _ in rows]], **given)
    expected = torch.tensor([[c for _, _, c in rows]], dtype=torch.float64)
    torch.testing.assert_close(gradient_coefficients(algorithm, d), expected, rtol=1e-9, atol=1e-9)


def assert_clipped_have_no_gradient(algorithm: Algorithm, seeds: int) -> None:
    """`clipped` marks exactly the decisions without a gradient."""
    for spread in (1.0, 0.1):
        for seed in range(seeds):
            d = replace(examples(seed, spread), state=algorithm.init_state())
            said = algorithm.policy_loss(d).diagnostics.get("clipped", torch.zeros_like(d.mask))
            silent = (gradient_coefficients(algorithm, d) == 0) & (d.mask == 1)
            assert torch.equal((said == 1) & (d.mask == 1), silent)


@dataclass
class Inputs:
    """Inputs of a formula as numpy arrays [B, T]; `at` lists the decisions of each row."""

    log_w: Array  # log π/μ
    log_r: Array  # log π/π_prox
    log_u: Array  # log π_prox/μ
    advantage: Array
    pi: Array
    mu: Array
    lag: Array
    log_reference: Array  # log π/π_ref
    logit_norm: Array
    outcome: Array  # [B]
    group: NDArray[np.int64]  # [B]
    at: list[list[int]]

    @property
    def everywhere(self) -> list[tuple[int, int]]:
        return [(b, t) for b, row in enumerate(self.at) for t in row]


def inputs_of(d: Decisions) -> Inputs:
    def array(x: Any) -> Any:
        return x.detach().numpy()

    assert d.reference_logp is not None and d.outcome is not None and d.group is not None
    target, behaviour, proximal = (array(x) for x in (d.target_logp, d.behaviour_logp, d.proximal_logp))
    return Inputs(
        log_w=target - behaviour,
        log_r=target - proximal,
        log_u=proximal - behaviour,
        advantage=array(d.advantage),
        pi=np.exp(target),
        mu=np.exp(behaviour),
        lag=array(d.lag),
        log_reference=target - array(d.reference_logp),
        logit_norm=array(d.logit_norm),
        outcome=array(d.outcome),
        group=array(d.group),
        at=[[t for t in range(d.mask.shape[1]) if d.mask[b, t] == 1] for b in range(d.mask.shape[0])],
    )
