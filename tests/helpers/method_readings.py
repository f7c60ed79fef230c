"""Slow literal readings of the methods' gradient coefficients, in numpy.

A reading gets one row at a time where the method's formula speaks of one row, and all rows where it speaks of the
minibatch. It never sees the method's code, torch, or the shared mathematics.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from method_examples import Array, Inputs

Reading = Callable[[Inputs], dict[tuple[int, int], float]]


def per_decision(coefficient: Callable[[Inputs, int, int], float]) -> Reading:
    return lambda s: {(b, t): coefficient(s, b, t) for b, t in s.everywhere}


def row_ratio(log_ratio: Array, s: Inputs, b: int) -> float:
    """Π_t of the row's ratios."""
    product = 1.0
    for t in s.at[b]:
        product *= math.exp(log_ratio[b, t])
    return product


def row_geometric(log_ratio: Array, s: Inputs, b: int) -> float:
    return float(row_ratio(log_ratio, s, b) ** (1.0 / len(s.at[b])))


def weight_of(level: str, log_ratio: Array, s: Inputs, b: int, t: int) -> float:
    if level == "token":
        return math.exp(log_ratio[b, t])
    return (row_ratio if level == "sequence" else row_geometric)(log_ratio, s, b)


def ppo_pull(r: float, a: float, low: float, high: float) -> float:
    """d/d log π of min(rA, clip(r, low, high)A), by cases."""
    if a > 0 and r > high:
        return 0.0
    if a < 0 and r < low:
        return 0.0
    return r * a


def seq_is(s: Inputs, b: int, t: int) -> float:
    return row_ratio(s.log_w, s, b) * s.advantage[b, t]


def tis(level: str, cap: float, clip: float = 0.0, veto: float = 0.0, normalise: bool = False) -> Reading:
    def reading(s: Inputs) -> dict[tuple[int, int], float]:
        log = s.log_u if clip else s.log_w
        weights = {(b, t): min(weight_of(level, log, s, b, t), cap) for b, t in s.everywhere}
        if normalise and level == "token":
            mean = sum(weights.values()) / len(weights)
        elif normalise:
            mean = sum(weights[b, row[0]] for b, row in enumerate(s.at)) / len(s.at)
        else:
            mean = 1.0
        out = {}
        for b, t in s.everywhere:
            pull = s.advantage[b, t]
            if clip:
                pull = ppo_pull(math.exp(s.log_r[b, t]), pull, 1 - clip, 1 + clip)
            if any(math.exp(log[b, j]) < veto for j in s.at[b]):
                pull = 0.0
            out[b, t] = weights[b, t] / mean * pull
        return out

    return reading


def mask_out(
    keep: Callable[[Array, Inputs, int, int], bool],
    weight: Callable[[Array, Inputs, int, int], float],
    denominator: str = "all",
    clip: float = 0.0,
    veto: float = 0.0,
) -> Reading:
    def reading(s: Inputs) -> dict[tuple[int, int], float]:
        log = s.log_u if clip else s.log_w
        kept = {
            (b, t)
            for b, t in s.everywhere
            if keep(log, s, b, t) and not any(math.exp(log[b, j]) < veto for j in s.at[b])
        }
        scale = len(s.everywhere) / max(len(kept), 1) if denominator == "kept" else 1.0
        out = {}
        for b, t in s.everywhere:
            a = s.advantage[b, t]
            pull = ppo_pull(math.exp(s.log_r[b, t]), a, 1 - clip, 1 + clip) if clip else a
            out[b, t] = scale * weight(log, s, b, t) * pull if (b, t) in kept else 0.0
        return out

    return reading


def window(level: str, low: float, high: float) -> Callable[[Array, Inputs, int, int], bool]:
    return lambda log, s, b, t: low <= weight_of(level, log, s, b, t) <= high


def terms(level: str, cap: float = math.inf) -> Callable[[Array, Inputs, int, int], float]:
    return lambda log, s, b, t: min(weight_of(level, log, s, b, t), cap)


def unit_weight(log: Array, s: Inputs, b: int, t: int) -> float:
    return 1.0


def mean_k3(log: Array, s: Inputs, b: int) -> float:
    return sum(math.exp(log[b, t]) - 1 - log[b, t] for t in s.at[b]) / len(s.at[b])


def cispo(low: float, high: float, proximal: bool = False) -> Reading:
    def coefficient(s: Inputs, b: int, t: int) -> float:
        r = math.exp((s.log_r if proximal else s.log_w)[b, t])
        return min(max(r, low), high) * s.advantage[b, t]

    return per_decision(coefficient)


def topr(level: str, cap: float) -> Reading:
    def coefficient(s: Inputs, b: int, t: int) -> float:
        a = s.advantage[b, t]
        return a if a > 0 else min(weight_of(level, s.log_w, s, b, t), cap) * a

    return per_decision(coefficient)


def deepseek(delta: float, low: float, high: float, proximal: bool = False) -> Reading:
    def coefficient(s: Inputs, b: int, t: int) -> float:
        away = sum(-s.log_w[b, j] for j in s.at[b]) / len(s.at[b])
        if s.advantage[b, t] < 0 and away > delta:
            return 0.0
        return ppo_pull(math.exp((s.log_r if proximal else s.log_w)[b, t]), s.advantage[b, t], low, high)

    return per_decision(coefficient)


def restrict(s: Inputs, log: Array) -> list[tuple[int, int]]:
    return [
        (b, t)
        for b, t in s.everywhere
        if (s.advantage[b, t] > 0 and log[b, t] > 0) or (s.advantage[b, t] < 0 and log[b, t] < 0)
    ]


def m2po_paper(tau: float, proximal: bool = False) -> Reading:
    def reading(s: Inputs) -> dict[tuple[int, int], float]:
        log = s.log_r if proximal else s.log_w
        kept = restrict(s, log)
        dropped = set()
        while kept and sum(log[i] ** 2 for i in kept) / len(kept) > tau:
            largest = max(kept, key=lambda i: log[i] ** 2)
            kept.remove(largest)
            dropped.add(largest)
        return {i: 0.0 if i in dropped else math.exp(log[i]) * s.advantage[i] for i in s.everywhere}

    return reading


def m2po_release(tau: float, floor_low: float, floor_high: float) -> Reading:
    def reading(s: Inputs) -> dict[tuple[int, int], float]:
        squares = [s.log_w[i] ** 2 for i in restrict(s, s.log_w)]
        low, high = 0.0, math.inf
        if squares and sum(squares) / len(squares) > tau:
            fits = [v for v in squares if sum(min(x, v) for x in squares) / len(squares) < tau]
            t = math.sqrt(max(fits)) if fits else 0.0
            low, high = 1 - max(1 - math.exp(-t), floor_low), 1 + max(math.exp(t) - 1, floor_high)
        return {i: ppo_pull(math.exp(s.log_w[i]), s.advantage[i], low, high) for i in s.everywhere}

    return reading


def gspo(low: float, high: float, proximal: bool = False) -> Reading:
    return per_decision(
        lambda s, b, t: ppo_pull(
            row_geometric(s.log_r if proximal else s.log_w, s, b), s.advantage[b, t], 1 - low, 1 + high
        )
    )


def dppo(divergence: str, delta: float, cap: float = 20.0) -> Reading:
    def coefficient(s: Inputs, b: int, t: int) -> float:
        pi, mu, a = s.pi[b, t], s.mu[b, t], s.advantage[b, t]
        far = abs(pi - mu) if divergence == "tv" else mu * math.log(mu / pi) + (1 - mu) * math.log((1 - mu) / (1 - pi))
        if far > delta and a * (pi - mu) > 0:
            return 0.0
        return min(pi / mu, cap) * a

    return per_decision(coefficient)


def tba(beta: float) -> Reading:
    def reading(s: Inputs) -> dict[tuple[int, int], float]:
        score = [s.outcome[b] - beta * sum(s.log_reference[b, t] for t in s.at[b]) for b in range(len(s.at))]
        out = {}
        for b, t in s.everywhere:
            peers = [score[j] for j in range(len(s.at)) if s.group[j] == s.group[b]]
            out[b, t] = 2 / beta * (score[b] - sum(peers) / len(peers))
        return out

    return reading


def otb(level: str, cap: float, zero_tail: bool = True) -> Reading:
    def reading(s: Inputs) -> dict[tuple[int, int], float]:
        def weight(b: int, t: int) -> float:
            return 1.0 if level == "none" else min(weight_of(level, s.log_w, s, b, t), cap)

        def energy(b: int, t: int) -> float:
            return sum(weight(b, j) ** 2 * (1 - 2 * s.pi[b, j] + s.logit_norm[b, j]) for j in s.at[b] if j <= t)

        out = {}
        for b, t in s.everywhere:
            group = [i for i in range(len(s.at)) if s.group[i] == s.group[b]]
            reach = [i for i in group if t in s.at[i]]
            baseline = sum(s.outcome[i] * energy(i, t) for i in reach) / sum(energy(i, t) for i in reach)
            if len(group) == 1 or (zero_tail and len(reach) == 1):
                baseline = 0.0
            out[b, t] = weight(b, t) * (s.outcome[b] - baseline)
        return out

    return reading


def geppo(clip: float) -> Reading:
    def reading(s: Inputs) -> dict[tuple[int, int], float]:
        lags = [s.lag[i] for i in s.everywhere]
        epsilon = clip / (sum(lags) / len(lags) + 1)
        return {
            i: ppo_pull(
                math.exp(s.log_w[i]), s.advantage[i], math.exp(s.log_u[i]) - epsilon, math.exp(s.log_u[i]) + epsilon
            )
            for i in s.everywhere
        }

    return reading


def appo(clip: float, cap: float) -> Reading:
    def coefficient(s: Inputs, b: int, t: int) -> float:
        r = min(math.exp(-s.log_u[b, t]), cap) * math.exp(s.log_w[b, t])
        return ppo_pull(r, s.advantage[b, t], 1 - clip, 1 + clip)

    return per_decision(coefficient)


def p3o(cap: str, kl_coef: float, estimator: str = "k3") -> Reading:
    def reading(s: Inputs) -> dict[tuple[int, int], float]:
        w = {i: math.exp(s.log_w[i]) for i in s.everywhere}
        ess = sum(w.values()) ** 2 / (len(w) * sum(x * x for x in w.values()))
        limit = ess if cap == "ess" else 1.0
        back = {i: w[i] - 1 if estimator == "k3" else s.log_w[i] for i in w}  # d KL / d log π
        return {i: min(w[i], limit) * s.advantage[i] - kl_coef * (1 - ess) * back[i] for i in w}

    return reading


def k3_rejection(delta: float, denominator: str = "all", clip: float = 0.0) -> Reading:
    return mask_out(lambda log, s, b, t: mean_k3(log, s, b) <= delta, terms("token"), denominator, clip)
