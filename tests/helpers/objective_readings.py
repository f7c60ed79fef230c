"""Objectives of methods as their sources write them, in plain Python, and their exact gradients by complex steps.

A reading is the sum over decisions of what is maximised, a function of log π; it sees neither torch nor the methods'
code. `sg` is the stop-gradient of the formulas, and comparisons are of real parts.
"""

from __future__ import annotations

import cmath
import math
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


def row_log_ratio(s: Numbers, b: int) -> complex:
    return sum((s.log_pi[b][t] - s.log_mu[b, t] for t in s.at[b]), 0j)


def log_pull(weight: Callable[[Numbers, int, int], complex]) -> Objective:
    """sg(weight) A log π."""
    return per_decision(lambda s, b, t: sg(weight(s, b, t)) * s.advantage[b, t] * s.log_pi[b][t])


def vespo(good: tuple[float, float], bad: tuple[float, float]) -> Objective:
    """φ(W) = e^λ W^k e^(−λW)."""

    def weight(s: Numbers, b: int, t: int) -> complex:
        k, rate = good if s.advantage[b, t] >= 0 else bad
        w = cmath.exp(row_log_ratio(s, b))
        return math.e**rate * w**k * cmath.exp(-rate * w)

    return log_pull(weight)


def minirl(low: float, high: float, cap: float) -> Objective:
    def weight(s: Numbers, b: int, t: int) -> complex:
        r, a = sg(s.r(b, t)), s.advantage[b, t]
        masked = (a > 0 and r > 1 + high) or (a < 0 and r < 1 - low)
        return 0.0 if masked else smaller(s.w(b, t), cap)

    return log_pull(weight)


def dg(eta: float) -> Objective:
    return log_pull(lambda s, b, t: 1 / (1 + cmath.exp(s.advantage[b, t] * s.log_pi[b][t] / eta)))


def oapl(beta_value: float, beta: float) -> Objective:
    """−(β₂ Σ log w − (R − V*))² over completions."""

    def objective(s: Numbers) -> complex:
        total = 0j
        for b, _ in enumerate(s.at):
            peers = [s.outcome[j] for j in range(len(s.at)) if s.group[j] == s.group[b]]
            best = beta_value * math.log(sum(math.exp(x / beta_value) for x in peers) / len(peers))
            total -= (beta * row_log_ratio(s, b) - (s.outcome[b] - best)) ** 2
        return total

    return objective


def ce_gppo(
    low_share: float, high_share: float, low: float, high: float, c: float = 0.0, proximal: bool = False
) -> Objective:
    def term(s: Numbers, b: int, t: int) -> complex:
        r, a = (s.r if proximal else s.w)(b, t), s.advantage[b, t]
        if a < 0 and sg(r) < 1 - low:
            return low_share * (1 - low) / sg(r) * r * a
        if a > 0 and sg(r) > 1 + high:
            return high_share * (1 + high) / sg(r) * r * a
        return larger(r * a, c * a) if c and a < 0 else r * a

    return per_decision(term)


def aspo(low: float, high: float, c: float, proximal: bool = False) -> Objective:
    """(r/sg(r))/sg(r) A where A > 0, the dual clip c A log π on both sides, and PPO's bounds."""

    def term(s: Numbers, b: int, t: int) -> complex:
        r, a, log_pi = (s.r if proximal else s.w)(b, t), s.advantage[b, t], s.log_pi[b][t]
        if a > 0:
            r = smaller(r, 1 + high)
            return c * a * log_pi if 1 / sg(r) > c else r / sg(r) / sg(r) * a
        r = larger(r, 1 - low)
        return c * a * log_pi if sg(r) > c else r * a

    return per_decision(term)


def gmpo(low: float, high: float, proximal: bool = False) -> Objective:
    """Σ over rows of length · A · geometric mean of the cut ratios, A the row's mean advantage; as verl has it."""

    def objective(s: Numbers) -> complex:
        total = 0j
        for b, row in enumerate(s.at):
            cut = []
            for t in row:
                log_r = cmath.log((s.r if proximal else s.w)(b, t))
                sign = math.copysign(1.0, s.advantage[b, t])
                cut.append(sign * smaller(sign * log_r, sign * clip(log_r, -low, high)))
            mean_advantage = sum(s.advantage[b, t] for t in row) / len(row)
            total += len(row) * mean_advantage * cmath.exp(sum(cut) / len(row))
        return total

    return objective


def bapo(bounds: tuple[float, float, float, float], step: float, release: bool, share: float = 0.5) -> Objective:
    """PPO's clip with c_low, c_high; the release compares the sums of positive and negative terms."""

    def sizes(s: Numbers, low: float, high: float) -> tuple[float, float]:
        terms = [(sg(s.w(b, t)), s.advantage[b, t]) for b, t in s.everywhere]
        good = sum(min(w, high) * a for w, a in terms if a > 0)
        return good, sum(max(w, low) * -a for w, a in terms if a < 0)

    def objective(s: Numbers) -> complex:
        low, low_most, high, high_most = bounds

        def too_little() -> bool:
            good, bad = sizes(s, low, high)
            return good / (bad + 1e-8) < share / (1 - share) if release else good < share * (good + bad)

        if release:
            while low < low_most and too_little():
                low = min(low + step, low_most)
        while high < high_most and too_little():
            high = min(high + step, high_most)
        while not release and low < low_most and too_little():
            low = min(low + step, low_most)
        total = 0j
        for b, t in s.everywhere:
            w, a = s.w(b, t), s.advantage[b, t]
            one = ppo(w, a, low, high)
            total += larger(one, 3.0 * a) if release and a < 0 else one
        return total

    return objective


def prime_rl(delta: float, tau: float, both: bool = False) -> Objective:
    def term(s: Numbers, b: int, t: int) -> complex:
        w, a = s.w(b, t), s.advantage[b, t]
        change = math.exp(sg(s.log_pi[b][t])) - math.exp(s.log_mu[b, t])
        masked = abs(change) > delta if both else (change > delta if a > 0 else change < -delta)
        return (0.0 if masked else w * a) - tau * cmath.log(w) ** 2

    return per_decision(term)


def dcpo(low: float, high: float, most: float, proximal: bool = False) -> Objective:
    def term(s: Numbers, b: int, t: int) -> complex:
        r, a = (s.r if proximal else s.w)(b, t), s.advantage[b, t]
        p = math.exp((s.log_prox if proximal else s.log_mu)[b, t])
        floor = (1 + math.sqrt(max(0.0, 1 - 4 * low / p))) / 2
        ceiling = min((1 + math.sqrt(1 + 4 * high / p)) / 2, most)
        objective = ppo(r, a, floor, ceiling)
        return larger(objective, most * a) if a < 0 else objective

    return per_decision(term)


def verl(loss: str, rule: str = "", weight: str = "") -> Objective:
    """REINFORCE or dual-clip PPO, IS weights or IcePop's, and a rule whose rejected tokens are 0 in the sum."""

    def objective(s: Numbers) -> complex:
        def log_w(b: int, t: int) -> float:
            return float(sg(s.log_pi[b][t]) if loss != "decoupled" else s.log_prox[b, t]) - float(s.log_mu[b, t])

        def mean_of(b: int, f: Callable[[float], float]) -> float:
            return sum(f(log_w(b, t)) for t in s.at[b]) / len(s.at[b])

        def keeps(b: int) -> bool:
            k1, count = mean_of(b, lambda x: -x), len(s.at[b])
            if rule == "seq_sum_k1":
                return math.log(0.5) <= count * k1 <= math.log(2.0)
            if rule == "seq_mean_k1":
                return math.log(0.999) <= k1 <= math.log(1.001)
            return rule != "seq_mean_k3" or mean_of(b, lambda x: math.exp(x) - 1 - x) <= 0.01

        def weight_at(b: int, t: int) -> float:
            w = math.exp(log_w(b, t))
            if weight == "icepop":
                return w if 0.5 <= w <= 5.0 else 0.0
            if weight == "sequence":
                w = math.exp(sum(log_w(b, j) for j in s.at[b]))
            return min(w, 2.0) if weight else 1.0

        total = 0j
        for b, t in s.everywhere:
            if not keeps(b):
                continue
            a = s.advantage[b, t]
            term = a * s.log_pi[b][t]
            if loss != "pg":
                r = s.r(b, t) if loss == "decoupled" else s.w(b, t)
                term = ppo(r, a, 0.8, 1.2)
                term = larger(term, 3.0 * a) if a < 0 else term
            total += weight_at(b, t) * term
        return total

    return objective


def tis(low: float, high: float, level: str = "token") -> Objective:
    def weight(s: Numbers, b: int, t: int) -> complex:
        return clip(s.w(b, t) if level == "token" else cmath.exp(row_log_ratio(s, b)), low, high)

    return log_pull(weight)


def trust_region_mask(largest: float, mean: float) -> Objective:
    """1[max k2 ≤ δ, mean k3 ≤ δ'] w A."""

    def weight(s: Numbers, b: int, t: int) -> complex:
        logs = [math.log(sg(s.w(b, j))) for j in s.at[b]]
        keeps = max(0.5 * x * x for x in logs) <= largest and sum(math.exp(x) - 1 - x for x in logs) <= mean * len(logs)
        return s.w(b, t) if keeps else 0.0

    return log_pull(weight)


def kpop(bound: float, low: float = 0.0, high: float = math.inf) -> Objective:
    """1[max(KL[μ ‖ π], KL[π ‖ μ]) ≤ δ, low ≤ w ≤ high] w A, with each KL written out over this token and the others."""

    def kl(p: float, q: float) -> float:
        return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))

    def weight(s: Numbers, b: int, t: int) -> complex:
        pi, mu = math.exp(sg(s.log_pi[b][t])), math.exp(s.log_mu[b, t])
        keeps = max(kl(mu, pi), kl(pi, mu)) <= bound and low <= sg(s.w(b, t)) <= high
        return s.w(b, t) if keeps else 0.0

    return log_pull(weight)
