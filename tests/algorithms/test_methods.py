"""Each method against a slow literal reading of its gradient coefficient, in numpy, on random masked rows.

A reading gets one row at a time where the method's formula speaks of one row, and all rows where it speaks of the
minibatch. It never sees the method's code, torch, or the shared mathematics.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions
from staleharness.errors import UserError
from staleharness.testing import decisions, example_decisions, example_trajectories, gradient_coefficients
from staleharness.testing.records import tensors_of, with_gradient

Array = NDArray[np.float64]


def make(name: str, **options: Any) -> Algorithm:
    return ALGORITHMS[name].from_options(options)


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


@dataclass
class Seen:
    """What a formula speaks of, as numpy arrays [B, T]; `at` lists the decisions of each row."""

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


def seen(d: Decisions) -> Seen:
    def array(x: Any) -> Any:
        return x.detach().numpy()

    assert d.reference_logp is not None and d.outcome is not None and d.group is not None
    target, behaviour, proximal = (array(x) for x in (d.target_logp, d.behaviour_logp, d.proximal_logp))
    return Seen(
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


Reading = Callable[[Seen], dict[tuple[int, int], float]]


def each(coefficient: Callable[[Seen, int, int], float]) -> Reading:
    return lambda s: {(b, t): coefficient(s, b, t) for b, t in s.everywhere}


def row_ratio(log_ratio: Array, s: Seen, b: int) -> float:
    """Π_t of the row's ratios."""
    product = 1.0
    for t in s.at[b]:
        product *= math.exp(log_ratio[b, t])
    return product


def row_geometric(log_ratio: Array, s: Seen, b: int) -> float:
    return float(row_ratio(log_ratio, s, b) ** (1.0 / len(s.at[b])))


def weight_of(level: str, log_ratio: Array, s: Seen, b: int, t: int) -> float:
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


# --- the readings -----------------------------------------------------------------------------------------


def seq_is(s: Seen, b: int, t: int) -> float:
    return row_ratio(s.log_w, s, b) * s.advantage[b, t]


def tis(level: str, cap: float, clip: float = 0.0, veto: float = 0.0, normalise: bool = False) -> Reading:
    def reading(s: Seen) -> dict[tuple[int, int], float]:
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


def masked(
    keep: Callable[[Array, Seen, int, int], bool],
    weight: Callable[[Array, Seen, int, int], float],
    denominator: str = "all",
    clip: float = 0.0,
    veto: float = 0.0,
) -> Reading:
    def reading(s: Seen) -> dict[tuple[int, int], float]:
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


def window(level: str, low: float, high: float) -> Callable[[Array, Seen, int, int], bool]:
    return lambda log, s, b, t: low <= weight_of(level, log, s, b, t) <= high


def own(level: str, cap: float = math.inf) -> Callable[[Array, Seen, int, int], float]:
    return lambda log, s, b, t: min(weight_of(level, log, s, b, t), cap)


def one(log: Array, s: Seen, b: int, t: int) -> float:
    return 1.0


def mean_k3(log: Array, s: Seen, b: int) -> float:
    return sum(math.exp(log[b, t]) - 1 - log[b, t] for t in s.at[b]) / len(s.at[b])


def cispo(low: float, high: float, proximal: bool = False) -> Reading:
    def coefficient(s: Seen, b: int, t: int) -> float:
        r = math.exp((s.log_r if proximal else s.log_w)[b, t])
        return min(max(r, low), high) * s.advantage[b, t]

    return each(coefficient)


def topr(level: str, cap: float) -> Reading:
    def coefficient(s: Seen, b: int, t: int) -> float:
        a = s.advantage[b, t]
        return a if a > 0 else min(weight_of(level, s.log_w, s, b, t), cap) * a

    return each(coefficient)


def deepseek(delta: float, low: float, high: float, proximal: bool = False) -> Reading:
    def coefficient(s: Seen, b: int, t: int) -> float:
        away = sum(-s.log_w[b, j] for j in s.at[b]) / len(s.at[b])
        if s.advantage[b, t] < 0 and away > delta:
            return 0.0
        return ppo_pull(math.exp((s.log_r if proximal else s.log_w)[b, t]), s.advantage[b, t], low, high)

    return each(coefficient)


def restricted(s: Seen, log: Array) -> list[tuple[int, int]]:
    return [
        (b, t)
        for b, t in s.everywhere
        if (s.advantage[b, t] > 0 and log[b, t] > 0) or (s.advantage[b, t] < 0 and log[b, t] < 0)
    ]


def m2po_paper(tau: float, proximal: bool = False) -> Reading:
    def reading(s: Seen) -> dict[tuple[int, int], float]:
        log = s.log_r if proximal else s.log_w
        kept = restricted(s, log)
        dropped = set()
        while kept and sum(log[i] ** 2 for i in kept) / len(kept) > tau:
            largest = max(kept, key=lambda i: log[i] ** 2)
            kept.remove(largest)
            dropped.add(largest)
        return {i: 0.0 if i in dropped else math.exp(log[i]) * s.advantage[i] for i in s.everywhere}

    return reading


def m2po_release(tau: float, floor_low: float, floor_high: float) -> Reading:
    def reading(s: Seen) -> dict[tuple[int, int], float]:
        squares = [s.log_w[i] ** 2 for i in restricted(s, s.log_w)]
        low, high = 0.0, math.inf
        if squares and sum(squares) / len(squares) > tau:
            fits = [v for v in squares if sum(min(x, v) for x in squares) / len(squares) < tau]
            t = math.sqrt(max(fits)) if fits else 0.0
            low, high = 1 - max(1 - math.exp(-t), floor_low), 1 + max(math.exp(t) - 1, floor_high)
        return {i: ppo_pull(math.exp(s.log_w[i]), s.advantage[i], low, high) for i in s.everywhere}

    return reading


def gspo(low: float, high: float, proximal: bool = False) -> Reading:
    return each(
        lambda s, b, t: ppo_pull(
            row_geometric(s.log_r if proximal else s.log_w, s, b), s.advantage[b, t], 1 - low, 1 + high
        )
    )


def dppo(divergence: str, delta: float, cap: float = 20.0) -> Reading:
    def coefficient(s: Seen, b: int, t: int) -> float:
        pi, mu, a = s.pi[b, t], s.mu[b, t], s.advantage[b, t]
        far = (
            abs(pi - mu)
            if divergence == "tv"
            else mu * math.log(mu / pi) + (1 - mu) * math.log((1 - mu) / (1 - pi))
        )
        if far > delta and a * (pi - mu) > 0:
            return 0.0
        return min(pi / mu, cap) * a

    return each(coefficient)


def tba(beta: float) -> Reading:
    def reading(s: Seen) -> dict[tuple[int, int], float]:
        score = [s.outcome[b] - beta * sum(s.log_reference[b, t] for t in s.at[b]) for b in range(len(s.at))]
        out = {}
        for b, t in s.everywhere:
            peers = [score[j] for j in range(len(s.at)) if s.group[j] == s.group[b]]
            out[b, t] = 2 / beta * (score[b] - sum(peers) / len(peers))
        return out

    return reading


def otb(level: str, cap: float, zero_tail: bool = True) -> Reading:
    def reading(s: Seen) -> dict[tuple[int, int], float]:
        def weight(b: int, t: int) -> float:
            return 1.0 if level == "none" else min(weight_of(level, s.log_w, s, b, t), cap)

        def energy(b: int, t: int) -> float:
            return sum(
                weight(b, j) ** 2 * (1 - 2 * s.pi[b, j] + s.logit_norm[b, j]) for j in s.at[b] if j <= t
            )

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
    def reading(s: Seen) -> dict[tuple[int, int], float]:
        lags = [s.lag[i] for i in s.everywhere]
        epsilon = clip / (sum(lags) / len(lags) + 1)
        return {
            i: ppo_pull(
                math.exp(s.log_w[i]),
                s.advantage[i],
                math.exp(s.log_u[i]) - epsilon,
                math.exp(s.log_u[i]) + epsilon,
            )
            for i in s.everywhere
        }

    return reading


def appo(clip: float, cap: float) -> Reading:
    def coefficient(s: Seen, b: int, t: int) -> float:
        r = min(math.exp(-s.log_u[b, t]), cap) * math.exp(s.log_w[b, t])
        return ppo_pull(r, s.advantage[b, t], 1 - clip, 1 + clip)

    return each(coefficient)


def p3o(cap: str, kl_coef: float, estimator: str = "k3") -> Reading:
    def reading(s: Seen) -> dict[tuple[int, int], float]:
        w = {i: math.exp(s.log_w[i]) for i in s.everywhere}
        ess = sum(w.values()) ** 2 / (len(w) * sum(x * x for x in w.values()))
        limit = ess if cap == "ess" else 1.0
        back = {i: w[i] - 1 if estimator == "k3" else s.log_w[i] for i in w}  # d KL / d log π
        return {i: min(w[i], limit) * s.advantage[i] - kl_coef * (1 - ess) * back[i] for i in w}

    return reading


def k3_rejection(delta: float, denominator: str = "all", clip: float = 0.0) -> Reading:
    return masked(lambda log, s, b, t: mean_k3(log, s, b) <= delta, own("token"), denominator, clip)


CASES: list[tuple[Algorithm, Reading]] = [
    (make("seq_is"), each(seq_is)),
    (make("tis"), tis("token", 2.0)),
    (make("tis", level="sequence", cap=8.0), tis("sequence", 8.0)),
    (make("tis", level="geometric", cap=1.1), tis("geometric", 1.1)),
    (make("tis", cap=1.1, clip=0.1), tis("token", 1.1, clip=0.1)),
    (make("tis", level="sequence", clip=0.1), tis("sequence", 2.0, clip=0.1)),
    (make("tis", normalise=True, veto=0.5), tis("token", 2.0, normalise=True, veto=0.5)),
    (make("tis", level="sequence", normalise=True), tis("sequence", 2.0, normalise=True)),
    (make("icepop"), masked(window("token", 0.5, 5.0), own("token"))),
    (make("icepop", low=0.9, high=1.1), masked(window("token", 0.9, 1.1), own("token"))),
    (
        make("icepop", low=0.9, high=1.2, denominator="kept", veto=0.6),
        masked(window("token", 0.9, 1.2), own("token"), "kept", veto=0.6),
    ),
    (make("icepop", low=0.9, clip=0.2), masked(window("token", 0.9, 5.0), own("token"), clip=0.2)),
    (make("mis_seq"), masked(window("sequence", 0.5, 2.0), own("sequence"))),
    (
        make("mis_seq", low=0.8, high=1.2, denominator="kept"),
        masked(window("sequence", 0.8, 1.2), own("sequence"), "kept"),
    ),
    (make("mis_geo"), masked(window("geometric", 0.99, 1.01), one)),
    (
        make("mis_geo", low=0.9, level="token", cap=1.05),
        masked(window("geometric", 0.9, 1.01), own("token", 1.05)),
    ),
    (
        make("mis_geo", high=1.3, level="sequence", denominator="kept"),
        masked(window("geometric", 0.99, 1.3), own("sequence", 2.0), "kept"),
    ),
    (make("k3_rejection"), k3_rejection(0.01)),
    (make("k3_rejection", delta=0.1, denominator="kept"), k3_rejection(0.1, "kept")),
    (make("k3_rejection", delta=0.1, clip=0.1), k3_rejection(0.1, clip=0.1)),
    (make("cispo"), cispo(0.0, 5.0)),
    (make("cispo", low=0.95, high=1.05, anchor="proximal"), cispo(0.95, 1.05, proximal=True)),
    (make("topr"), topr("sequence", 1.0)),
    (make("topr", level="token", cap=1.1), topr("token", 1.1)),
    (make("deepseek_mask"), deepseek(0.5, 0.8, 1.2)),
    (
        make("deepseek_mask", delta=0.01, clip=0.1, clip_high=0.3, anchor="proximal"),
        deepseek(0.01, 0.9, 1.3, True),
    ),
    (make("m2po"), m2po_paper(0.04)),
    (make("m2po", tau=0.001, anchor="proximal"), m2po_paper(0.001, True)),
    (make("m2po", form="release"), m2po_release(0.04, 0.3, 0.5)),
    (
        make("m2po", form="release", tau=0.001, floor_low=0.0, floor_high=0.0),
        m2po_release(0.001, 0.0, 0.0),
    ),
    (make("gspo"), gspo(3e-4, 4e-4)),
    (make("gspo", clip=0.05, clip_high=0.0, anchor="proximal"), gspo(0.05, 0.05, True)),
    (make("dppo"), dppo("tv", 0.2)),
    (make("dppo", delta=0.01, cap=1.5), dppo("tv", 0.01, 1.5)),
    (make("dppo", divergence="kl", delta=0.05), dppo("kl", 0.05)),
    (make("dppo", divergence="kl", delta=1e-4), dppo("kl", 1e-4)),
    (make("tba"), tba(0.005)),
    (make("tba", beta=1.0), tba(1.0)),
    (make("otb"), otb("token", 2.0)),
    (make("otb", level="none", zero_tail=False), otb("none", 1.0, False)),
    (make("otb", level="sequence", cap=8.0), otb("sequence", 8.0)),
    (make("geppo"), geppo(0.2)),
    (make("appo"), appo(0.4, 2.0)),
    (make("appo", clip=0.1, weight_cap=1.1, proximal="ewma"), appo(0.1, 1.1)),
    (make("p3o"), p3o("ess", 1.0)),
    (make("p3o", cap="one", kl_coef=0.5, estimator="k2"), p3o("one", 0.5, "k2")),
]
NAMES = sorted({algorithm.name for algorithm, _ in CASES})


@pytest.mark.parametrize("spread", [1.0, 0.1])
@pytest.mark.parametrize(("algorithm", "reading"), CASES, ids=[str(a) for a, _ in CASES])
def test_each_decision_pulls_as_the_formula_reads(
    algorithm: Algorithm, reading: Reading, spread: float
) -> None:
    for seed in range(4):
        d = examples(seed, spread)
        expected = torch.zeros_like(d.mask)
        for (b, t), pull in reading(seen(d)).items():
            expected[b, t] = pull
        torch.testing.assert_close(gradient_coefficients(algorithm, d), expected)


@pytest.mark.parametrize(("algorithm", "reading"), CASES, ids=[str(a) for a, _ in CASES])
def test_the_examples_are_not_all_alike(algorithm: Algorithm, reading: Reading) -> None:
    """Over them every method pulls somewhere, and not everywhere as plain importance weighting would."""
    plain, pulls = [], []
    for spread in (1.0, 0.1):
        for seed in range(4):
            d = examples(seed, spread)
            w = (d.target_logp - d.behaviour_logp).detach().exp()
            plain.append(w * d.advantage * d.mask)
            pulls.append(gradient_coefficients(algorithm, d))
    assert any(bool(x.any()) for x in pulls)
    assert not all(torch.allclose(x, y) for x, y in zip(plain, pulls, strict=True))


@pytest.mark.parametrize("algorithm", [a for a, _ in CASES], ids=str)
def test_clipped_says_exactly_which_decisions_were_left_without_gradient(algorithm: Algorithm) -> None:
    for spread in (1.0, 0.1):
        for seed in range(4):
            d = replace(examples(seed, spread), state=algorithm.init_state())
            said = algorithm.policy_loss(d).diagnostics.get("clipped", torch.zeros_like(d.mask))
            silent = (gradient_coefficients(algorithm, d) == 0) & (d.mask == 1)
            if algorithm.policy_gradient:
                assert torch.equal((said == 1) & (d.mask == 1), silent)


def test_every_method_says_what_its_mechanisms_touched() -> None:
    """By name, as 0 or 1 for each decision; the two that have no mechanism say something else."""
    mechanisms = {"clipped", "masked", "vetoed", "truncated"}
    without = {"seq_is", "tba"}
    for algorithm, _ in CASES:
        d = replace(examples(0, 1.0), state=algorithm.init_state())
        diagnostics = algorithm.policy_loss(d).diagnostics
        assert diagnostics and (mechanisms & set(diagnostics) or algorithm.name in without)
        for name in mechanisms & set(diagnostics):
            assert ((diagnostics[name] == 0) | (diagnostics[name] == 1)).all()


# --- what is not a coefficient ----------------------------------------------------------------------------


def test_on_control_dppo_measures_the_distribution_and_not_the_density() -> None:
    """tv is |w − 1| there: 1.3 goes too far up, 0.7 too far down; a density above 1 is no obstacle."""
    d = decisions([[1.3, 1.3, 0.7, 0.7, 1.1]], [[1.0, -1.0, 1.0, -1.0, 1.0]], target_logp=3.0)
    pull = gradient_coefficients(make("dppo"), d)
    torch.testing.assert_close(pull, torch.tensor([[0.0, -1.3, 0.7, 0.0, 1.1]], dtype=torch.float64))
    clip = gradient_coefficients(make("ppo_clip", clip=0.2), d)
    torch.testing.assert_close(pull, clip)
    kl = make("dppo", divergence="kl", delta=0.03)  # the stand-in's ½ log² w is 0.034, 0.064, 0.0045
    torch.testing.assert_close(gradient_coefficients(kl, d), clip)
    assert torch.equal(gradient_coefficients(make("dppo", divergence="kl", delta=0.07), d) != 0, d.mask == 1)


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_of_trajectory_balance_is_the_squared_imbalance_and_its_slope_is_right(seed: int) -> None:
    """Per completion, with log Ẑ by the definition; the slope by central differences with log Ẑ held still."""
    d, beta = examples(seed, 1.0), 0.7
    s, algorithm = seen(d), make("tba", beta=beta)

    def log_z(b: int) -> float:
        peers = [j for j in range(len(s.at)) if s.group[j] == s.group[b]]
        terms = [-sum(s.log_reference[j, t] for t in s.at[j]) + s.outcome[j] / beta for j in peers]
        return sum(terms) / len(terms)

    def squared(b: int, shift: float = 0.0) -> float:
        return float(
            (log_z(b) + shift + sum(s.log_reference[b, t] for t in s.at[b]) - s.outcome[b] / beta) ** 2
        )

    losses = (algorithm.policy_loss(d).loss * d.mask).sum(1)
    torch.testing.assert_close(losses, torch.tensor([squared(b) for b in range(7)], dtype=torch.float64))
    pull, step = gradient_coefficients(algorithm, d), 1e-5
    for b, t in s.everywhere:
        slope = (squared(b, step) - squared(b, -step)) / (2 * step)
        assert float(pull[b, t]) == pytest.approx(-slope, abs=1e-6)


def test_in_trajectory_balance_a_completion_does_not_pull_through_the_partition_of_its_prompt() -> None:
    """log Ẑ is held still: the loss of one row has no gradient in the rows beside it."""
    d = examples(0, 1.0)
    (gradient,) = torch.autograd.grad(make("tba").policy_loss(d).loss[0].sum(), d.target_logp)
    assert gradient[0].any() and not gradient[1:].any()


@pytest.mark.parametrize("name", ["tba", "otb"])
def test_a_completion_that_does_not_teach_is_not_of_its_group(name: str) -> None:
    """Left out by the mask (cut off at the length limit, say), its outcome moves nobody's baseline."""
    d = examples(0, 1.0)
    assert d.outcome is not None and d.group is not None
    group = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    without = replace(d, group=group, mask=d.mask * (torch.arange(7) != 1).double()[:, None])
    other_outcome = replace(without, outcome=d.outcome + 5.0 * (torch.arange(7) == 1))
    alone = replace(without, group=torch.tensor([0, 9, 0, 1, 1, 2, 2]))
    for same in (other_outcome, alone):
        torch.testing.assert_close(
            gradient_coefficients(make(name), without), gradient_coefficients(make(name), same)
        )


def test_trajectory_balance_is_at_rest_where_the_policy_is_the_tilted_reference() -> None:
    """π ∝ π_ref exp(R/β): log π/π_ref − R/β is one number for a prompt."""
    outcome, beta = [1.0, 0.0, 1.0], 0.5
    ratio = [[math.exp(r / beta - 0.3)] for r in outcome]
    d = decisions([[1.0]] * 3, 0.0, reference_ratio=ratio, group=[4, 4, 4], outcome=outcome)
    pull = gradient_coefficients(make("tba", beta=beta), d)
    torch.testing.assert_close(pull, torch.zeros(3, 1, dtype=torch.float64))


def test_the_optimal_token_baseline_by_hand() -> None:
    """π = ½, Σπ² = ½: each token adds ½. Energies ½, 1 in both rows, R = 1, 0: B = ½ while both go on, then none."""
    d = decisions(
        1.0, [[9.0] * 3] * 2, target_logp=math.log(0.5), logit_norm=0.5, mask=[[1, 1, 1], [1, 1, 0]],
        group=[0, 0], outcome=[1.0, 0.0],
    )  # fmt: skip
    expected = torch.tensor([[0.5, 0.5, 1.0], [-0.5, -0.5, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(gradient_coefficients(make("otb"), d), expected)
    expected[0, 2] = 0.0  # its own outcome is its baseline
    torch.testing.assert_close(
        gradient_coefficients(make("otb", zero_tail=False), d), expected, atol=1e-7, rtol=0
    )
    alone = replace(d, group=torch.tensor([0, 1]))
    expected = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(gradient_coefficients(make("otb", zero_tail=False), alone), expected)


def test_a_group_is_what_has_one_number_wherever_its_rows_stand() -> None:
    d = examples(0, 1.0)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    assert d.group is not None and d.outcome is not None
    for name in ("tba", "otb"):
        straight = gradient_coefficients(make(name), d)
        rows = {key: getattr(d, key)[order].detach() for key in tensors_of(d)}
        shuffled = gradient_coefficients(make(name), with_gradient(replace(d, **rows)))
        torch.testing.assert_close(shuffled, straight[order])


def test_geppo_steps_less_after_it_went_too_far_and_more_after_it_hardly_moved() -> None:
    geppo = make("geppo")
    start = geppo.init_state()
    for moved, factor in ((1.01, 1 / 1.03), (0.99, 1.0), (0.51, 1.0), (0.49, 1.03)):
        state = geppo.next_state(start, {"moved": moved})
        assert state == {"step_factor": pytest.approx(factor)}
        assert geppo.step_scale(replace(examples(0, 1.0), state=state)) == pytest.approx(factor)
    assert make("geppo", adapt=0.0).next_state(start, {"moved": 9.0}) == start


def test_what_geppo_watches_is_total_variation_in_units_of_half_its_clip() -> None:
    """w = 1.3, 1.1, u = 1.2, 1: ½ E|w − u| = 0.05. Lag 1 halves ε to 0.1, half of which is 0.05."""
    d = decisions([[1.3, 1.1]], [[1.0, 1.0]], proximal_ratio=[[1.2, 1.0]], lag=1.0)
    said = make("geppo").policy_loss(d).diagnostics["moved"]
    torch.testing.assert_close(said, torch.ones(1, 2, dtype=torch.float64))


def test_the_advantage_of_appo_is_vtraces_times_its_truncated_weight() -> None:
    t = example_trajectories(dtype=torch.float64)
    said, plain = make("appo", rho_bar=1.5).targets(t), make("vaco", rho_bar=1.5).targets(t)
    w = (t.target_logp - t.behaviour_logp).exp().clamp(max=1.5)
    torch.testing.assert_close(said.advantage, w * plain.advantage)
    torch.testing.assert_close(said.value_target, plain.value_target)


def test_the_targets_of_geppo_are_vtraces() -> None:
    t = example_trajectories(dtype=torch.float64)
    said, vaco = make("geppo", rho_bar=2.0).targets(t), make("vaco", rho_bar=2.0, c_bar=2.0).targets(t)
    torch.testing.assert_close(said.advantage, vaco.advantage)
    torch.testing.assert_close(said.value_target, vaco.value_target)


def test_impacts_ratio_has_the_slower_of_two_policies_below_it() -> None:
    """r = π/max(π_tgt, μ/2): 1.2, then μ = 4 π_tgt, where r is 1.2·½ and not 1.2."""
    d = decisions([[1.2, 0.3]], [[1.0, 1.0]], proximal_ratio=[[1.0, 0.25]])
    pull = gradient_coefficients(make("appo"), d)
    torch.testing.assert_close(pull, torch.tensor([[1.2, 0.6]], dtype=torch.float64))


@pytest.mark.parametrize("name", NAMES)
def test_a_number_below_zero_is_refused_in_one_line(name: str) -> None:
    cls = ALGORITHMS[name]
    for key, hint in cls.hyper_parameter_types().items():
        if hint is float:
            with pytest.raises(UserError, match=f"{name}: {key} must be"):
                cls.from_options({key: -0.5})
