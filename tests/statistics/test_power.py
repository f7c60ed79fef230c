"""Seeds needed: the formula against statsmodels, and against simulated tests."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from statsmodels.stats.power import TTestIndPower

import staleharness.statistics.significance_and_power
from staleharness.statistics.significance_and_power import MAX_SEEDS, power, seeds_needed, simulated_power, spread


@pytest.mark.parametrize("effect", [0.2, 0.5, 0.8, 1.2])
@pytest.mark.parametrize("n", [2, 3, 5, 20, 200])
def test_power_is_that_of_statsmodels(n: int, effect: float) -> None:
    assert power(n, effect) == pytest.approx(TTestIndPower().power(effect, n, 0.05), abs=1e-8)
    assert power(n, -effect) == power(n, effect)


@pytest.mark.parametrize("effect", [0.15, 0.5, 0.8, 2.0])
def test_the_seeds_needed_are_the_fewest_that_reach_the_power(effect: float) -> None:
    n = seeds_needed(effect)
    exact = TTestIndPower().solve_power(effect, power=0.8, alpha=0.05)
    assert n == int(np.ceil(exact)) and power(n, effect) >= 0.8 > power(n - 1, effect)


def test_seeds_needed_for_extreme_effects() -> None:
    assert seeds_needed(50.0) == seeds_needed(1e6) == 2
    assert seeds_needed(0.0) is None and seeds_needed(0.05) is None and power(MAX_SEEDS, 0.05) < 0.8


def test_the_spread_is_pooled_within_settings() -> None:
    assert spread([np.array([1.0, 3.0]), np.array([10.0, 10.0, 13.0])]) == pytest.approx(np.sqrt((2 + 6) / 3))
    assert spread([np.full(3, 0.1), np.full(5, 0.7)]) == 0.0


@pytest.mark.parametrize("settings, runs", [(2, 400), (300, 3)], ids=["many seeds", "few seeds"])
def test_simulated_tests_have_the_power_of_the_formula(settings: int, runs: int) -> None:
    """With few seeds, too, whose deviations from their own mean are too small."""
    rng = np.random.default_rng(0)
    columns = [rng.standard_normal(runs) * 3 + 5 * level for level in range(settings)]
    effect = 0.9
    n = seeds_needed(effect)
    assert n is not None
    found = simulated_power(columns, effect * spread(columns), n, np.random.default_rng(1), reps=20_000)
    assert found == pytest.approx(power(n, effect), abs=0.02)
    none = simulated_power(columns, 0.0, n, np.random.default_rng(2), reps=20_000)
    assert none == pytest.approx(0.05, abs=0.01)


def test_runs_are_drawn_a_few_at_a_time_and_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, found = [np.array([1.0, 2.0, 4.0, 8.0])], []
    for block in (2**20, 2**16, 700, 1):
        monkeypatch.setattr(staleharness.statistics.significance_and_power, "BLOCK", block)
        rng = np.random.default_rng(3)
        found.append((simulated_power(columns, 2.0, 7, rng, reps=500), rng.integers(2**40)))
    assert len(set(found)) == 1


def test_drawing_many_runs_takes_little_memory() -> None:
    rng = np.random.default_rng(3)
    simulated_power([np.arange(9.0)], 1.0, 2, rng, reps=10)  # SciPy is there
    tracemalloc.start()
    try:
        simulated_power([np.arange(9.0)], 1.0, MAX_SEEDS, rng)
        assert tracemalloc.get_traced_memory()[1] < 4e6  # at once they would be 32 MB, several times over
    finally:
        tracemalloc.stop()
