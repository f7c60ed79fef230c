"""Objectives of methods as their sources write them, in plain Python, and their exact gradients by complex steps.

A reading is the sum over decisions of what is maximised, a function of log π; it sees neither torch nor the methods'
code. `sg` is the stop-gradient of the formulas, and comparisons are of real parts.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from method_examples import Array, inputs_of
from torch import Tensor

from staleharness.batch import Decisions

Objective = Callable[["Numbers"], complex]
Number = TypeVar("Number", float, complex)
STEP = 1e-40  # of the imaginary part: no difference is taken, so nothing is rounded away


@dataclass
class Numbers:
    """A minibatch as the formulas see it: [b][t] for each row `b` and each decision `t` in `at[b]`."""

    log_pi: list[list[complex]]
    log_mu: Array
    log_prox: Array
    advantage: Array
    outcome: Array  # [b]
    group: Array  # [b]
    at: list[list[int]]

    def w(self, b: int, t: int) -> complex:
        return cmath.exp(self.log_pi[b][t] - self.log_mu[b, t])

    def r(self, b: int, t: int) -> complex:
        return cmath.exp(self.log_pi[b][t] - self.log_prox[b, t])

    @property
    def everywhere(self) -> list[tuple[int, int]]:
        return [(b, t) for b, row in enumerate(self.at) for t in row]


def gradient_of(objective: Objective, d: Decisions) -> Tensor:
    """∂J/∂ log π of each decision [B, T]: the imaginary part of J(log π + i·h)/h."""
    s = inputs_of(d)
    log_pi, log_mu, log_prox = (x.detach().numpy() for x in (d.target_logp, d.behaviour_logp, d.proximal_logp))
    out = torch.zeros_like(d.mask)
    for b, t in s.everywhere:
        moved = [[complex(x) for x in row] for row in log_pi]
        moved[b][t] += STEP * 1j
        numbers = Numbers(moved, log_mu, log_prox, s.advantage, s.outcome, s.group, s.at)
        out[b, t] = complex(objective(numbers)).imag / STEP
    return out


def sg(x: complex) -> float:
    return complex(x).real


def smaller(x: complex, y: complex) -> complex:
    return x if sg(x) <= sg(y) else y


def larger(x: complex, y: complex) -> complex:
    return x if sg(x) >= sg(y) else y


def clip(x: complex, low: float, high: float) -> complex:
    return larger(low, smaller(high, x))


def per_decision(term: Callable[[Numbers, int, int], complex]) -> Objective:
    return lambda s: sum((term(s, b, t) for b, t in s.everywhere), 0j)


def ppo(r: complex, a: float, low: float, high: float) -> complex:
    """Schulman et al. 2017, eq. 7."""
    return smaller(r * a, clip(r, low, high) * a)


def dual_clip(c: float, anchor: str = "behaviour") -> Objective:
    """Ye et al. 2020: max(min(rA, clip(r)A), cA) where A < 0."""

    def term(s: Numbers, b: int, t: int) -> complex:
        r, a = (s.w if anchor == "behaviour" else s.r)(b, t), s.advantage[b, t]
        objective = ppo(r, a, 0.8, 1.2)
        if a < 0:
            objective = larger(objective, c * a)
        return sg(s.w(b, t) / s.r(b, t)) * objective if anchor == "decoupled" else objective

    return per_decision(term)


def sapo(positive: float, negative: float, proximal: bool = False) -> Objective:
    """4/τ σ(τ(r − 1)) A."""

    def term(s: Numbers, b: int, t: int) -> complex:
        a = s.advantage[b, t]
        tau = positive if a > 0 else negative
        return 4 / tau / (1 + cmath.exp(-tau * ((s.r if proximal else s.w)(b, t) - 1))) * a

    return per_decision(term)
