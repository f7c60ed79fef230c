"""Agreement of orders, against hand-worked cases, scipy and simulated replications."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import kendalltau, norm

from staleharness.statistics.rank_correlation import _pair_tau, order_agreement, replication_tau


def order_of(*labels: str) -> dict[str, float]:
    return {label: -float(place) for place, label in enumerate(labels)}


def test_agreement_counts_pairs_by_hand() -> None:
    # a b c d against a c b d: of 6 pairs one is swapped
    assert order_agreement(order_of(*"abcd"), order_of(*"acbd")).tau == pytest.approx((5 - 1) / 6)
    assert order_agreement(order_of(*"abcd"), order_of(*"dcba")).tau == -1.0
    # common methods alone count
    assert order_agreement(order_of(*"abcx"), order_of(*"yabc")) == (1.0, pytest.approx(1 / 3), 3)
    # a tie: of 3 pairs the tied one counts on one side only, 2 / √(3 · 2)
    tied = {"a": 1.0, "b": 1.0, "c": 0.0}
    assert order_agreement(order_of(*"abc"), tied).tau == pytest.approx(2 / math.sqrt(6))


def test_too_few_methods_or_only_ties_have_no_agreement() -> None:
    assert order_agreement(order_of(*"ab"), order_of(*"ab")) is None
    assert order_agreement(order_of(*"abc"), dict.fromkeys("abc", 1.0)) is None
    assert replication_tau({"a": [[1.0, 2.0]]}) is None
    assert replication_tau({"a": [[1.0, 2.0]], "b": [[1.0]]}) is None


def test_methods_far_apart_replicate_and_equal_ones_do_not() -> None:
    apart = {label: [[10.0 * i, 10.0 * i + 0.1]] for i, label in enumerate("abcd")}
    assert replication_tau(apart) == pytest.approx(1.0)
    # the same mean in all: the errors explain the whole spread, and pairs fall either way
    assert replication_tau({label: [[0.0, 1.0, 2.0]] for label in "abcd"}) == 0.0
    # no error at all: the order is certain
    assert replication_tau({label: [[float(i)] * 3] for i, label in enumerate("abc")}) == 1.0


def test_the_tau_of_a_pair_is_its_double_integral() -> None:
    # without doubt about δ: both replications agree with q² + (1 − q)², disagree with 2 q (1 − q)
    q = norm.cdf(0.6 / 0.5)
    assert _pair_tau(0.6, 0.0, 0.25) == pytest.approx(q**2 + (1 - q) ** 2 - 2 * q * (1 - q))
    # with it: two normal variables of means 0.6 that share the part δ; P(same sign) is a quadrant probability
    from scipy.stats import multivariate_normal

    shared, error = 0.3, 0.25
    both = multivariate_normal([0.6, 0.6], [[shared + error, shared], [shared, shared + error]])
    below = multivariate_normal([-0.6, -0.6], both.cov)
    same = both.cdf([0.0, 0.0]) + below.cdf([0.0, 0.0])
    assert _pair_tau(0.6, shared, error) == pytest.approx(2 * same - 1, abs=1e-4)


@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
@pytest.mark.long
def test_the_expected_tau_is_that_of_simulated_replications(spread: float) -> None:
    rng = np.random.default_rng(7)
    seeds, expected, measured = 8, [], []
    for _ in range(60):
        true = rng.normal(0, spread, 12)
        first, second, third = (true[:, None] + rng.normal(0, 1.5, (12, seeds)) for _ in range(3))
        found = replication_tau({f"m{i}": [runs] for i, runs in enumerate(first)})
        expected.append(found)
        measured.append(kendalltau(second.mean(1), third.mean(1)).statistic)
    error = np.std(np.subtract(expected, measured)) / math.sqrt(60)
    assert abs(np.mean(expected) - np.mean(measured)) < 0.03 + 2 * error, (np.mean(expected), np.mean(measured))


def test_tasks_count_alike_whatever_their_number_of_runs() -> None:
    one = {"a": [[0.0, 0.2]], "b": [[1.0, 1.2]], "c": [[1.1, 1.4]]}
    twice = {label: [tasks[0], tasks[0]] for label, tasks in one.items()}
    assert replication_tau(twice) > replication_tau(one)
    # two tasks of the same runs: the mean is the same, its variance half, as with half the variance in one task
    halved = {}
    for label, (runs,) in one.items():
        mean, half = np.mean(runs), (runs[1] - runs[0]) / 2
        halved[label] = [[mean - half / math.sqrt(2), mean + half / math.sqrt(2)]]
    assert replication_tau(twice) == pytest.approx(replication_tau(halved))
