"""Student's and Welch's intervals on Student's own data, as R's `t.test(extra ~ group, sleep)` prints them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from staleharness.statistics.t_tests_and_intervals import (
    degrees_of_freedom,
    mean_over_groups,
    permutation_test,
    sign_test,
    t_reach,
    welch,
)

# Hours of sleep gained under two drugs, ten patients (Student, 1908, table on page 20).
DRUG_1 = np.array([0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0])
DRUG_2 = np.array([1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4])


def test_paired_interval_and_p_are_students() -> None:
    gaps = DRUG_2 - DRUG_1
    estimate = mean_over_groups([gaps.mean()], [gaps.var(ddof=1) / 10], [10])
    assert estimate[:4] == pytest.approx((1.58, 0.7001142, 2.4598858, 0.002833), abs=1e-6)
    assert estimate[4:] == pytest.approx((gaps.std(ddof=1) / np.sqrt(10), 9))


def test_unpaired_interval_and_p_are_welchs() -> None:
    variances = np.array([DRUG_1.var(ddof=1), DRUG_2.var(ddof=1)]) / 10
    assert degrees_of_freedom(variances, [10, 10]) == pytest.approx(17.776, abs=1e-3)
    gap = DRUG_1.mean() - DRUG_2.mean()
    ends = gap - t_reach(variances, [10, 10]), gap + t_reach(variances, [10, 10])
    assert ends == pytest.approx((-3.3654832, 0.2054832), abs=1e-6)
    test, reverse = welch([DRUG_1], [DRUG_2]), welch([DRUG_2], [DRUG_1])
    assert test.p == reverse.p == pytest.approx(0.07939, abs=1e-5) and (test.low, test.high) == pytest.approx(ends)


def test_degrees_of_freedom_by_hand_and_point_by_point() -> None:
    """Variances 3 and 1 of 4 and 3 runs: (3 + 1)² / (9/3 + 1/2) = 16 / 3.5. 2 and 0: those of the first, 3."""
    found = degrees_of_freedom(np.array([[3.0, 2.0, 0.0], [1.0, 0.0, 0.0]]), [4, 3])
    assert found.tolist() == pytest.approx([16 / 3.5, 3.0, 1.0])
    assert t_reach(np.array([[4.0, 0.0]]), [5]).tolist() == pytest.approx([2 * 2.776445, 0.0])  # t of 4 at 97.5 %


def test_groups_count_alike_whatever_their_runs() -> None:
    """Variances 2 and 2 of two means, 3 runs each: 1 of their mean, and 4 degrees of freedom, whose t is 2.776445."""
    estimate = mean_over_groups([2.0, 4.0], [2.0, 2.0], [3, 3])
    assert estimate[:3] == pytest.approx((3.0, 3 - 2.776445, 3 + 2.776445), abs=1e-6)


@pytest.mark.parametrize(
    ("gaps", "p"),
    [([(1.0, 3)], 2 / 8), ([(1.0, 2), (-1.0, 1)], 1.0), ([(0.0, 9), (1.0, 5)], 2 / 32), ([(0.0, 4)], 1.0)],
)
def test_sign_test_counts_pairs_without_ties(gaps: list[tuple[float, int]], p: float) -> None:
    assert sign_test(gaps) == p


@pytest.mark.parametrize(("n", "m"), [(3, 3), (8, 5), (30, 8)])
def test_welch_of_one_task_is_scipys(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.normal(1, 1, n), rng.normal(0, 3, m)
    test, other = welch([a], [b]), stats.ttest_ind(a, b, equal_var=False)
    interval = other.confidence_interval()
    assert (test.value, test.p) == pytest.approx((a.mean() - b.mean(), other.pvalue))
    assert (test.low, test.high) == pytest.approx((interval.low, interval.high))


def test_welch_over_tasks_weighs_them_alike() -> None:
    """Two tasks with the same runs: the same mean difference, a standard error smaller by √2."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(1, 1, 6), rng.normal(0, 1, 6)
    one, two = welch([a], [b]), welch([a, a], [b, b])
    assert one.value == pytest.approx(two.value)
    error = np.sqrt(a.var(ddof=1) / 6 + b.var(ddof=1) / 6)
    assert two.p == pytest.approx(2 * stats.t.sf(abs(two.value) / (error / 2**0.5), 2 * freedom(a, b)))


def freedom(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    u, v = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    return float((u + v) ** 2 / (u**2 / (len(a) - 1) + v**2 / (len(b) - 1)))


def test_welch_without_spread_is_the_permutation_test() -> None:
    ones, tenths = np.ones(4), np.full(3, 0.1)
    assert welch([ones], [0 * ones])[1:4] == (None, None, 2 / math.comb(8, 4))
    assert welch([tenths], [tenths + 1]).p == 0.1  # 2 of the 20 ways to split six runs
    assert welch([ones], [ones])[:4] == (0.0, 0.0, 0.0, 1.0)
    assert welch([np.full(3, 0.7)], [np.full(5, 0.7)]).p == 1.0  # whatever their means are rounded to
    assert 0 < welch([tenths], [np.array([1.0, 2.0, 3.0])]).p < 1


@pytest.mark.parametrize(
    ("gaps", "p"), [((0.5, 0.5), 2 / 400), ((0.5, 0.0), 2 / 20), ((0.5, -0.3), 0.55), ((0.5, -0.5), 1.0)]
)
def test_permutations_are_within_tasks(gaps: tuple[float, float], p: float) -> None:
    """All 20 ways to split the six runs of each of two tasks, one by one."""
    a, b = [np.full(3, 1 + gap) for gap in gaps], [np.ones(3)] * 2
    found = welch(a, b)
    splits = [list(pick) for pick in itertools.combinations(range(6), 3)]
    runs = [np.concatenate(pair) for pair in zip(a, b, strict=True)]
    sums = [[6 * x[pick].mean() - x.sum() for pick in splits] for x in runs]
    all_sums = np.add.outer(*sums)
    assert found.p == pytest.approx(p) and found.low is None
    assert p == pytest.approx(np.mean(abs(all_sums) >= abs(3 * sum(gaps)) - 1e-9))


def test_permutations_of_many_tasks_fit_into_memory() -> None:
    gaps = [1 + 0.01 * i for i in range(12)]
    assert permutation_test(gaps, [4] * 12, [4] * 12) == pytest.approx(2 / 70**12)  # no other split has as large a sum
    half = permutation_test([*gaps, *(-gap for gap in gaps)], [4] * 24, [4] * 24)  # their sum is 0
    assert half == 1.0
