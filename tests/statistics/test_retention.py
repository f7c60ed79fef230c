"""The share of its synchronous score that a method keeps, counted from what a random policy returns."""

from __future__ import annotations

from pathlib import Path

import pytest
from results_helper import write_run

from staleharness.statistics.retention import Retention, random_returns, retention
from staleharness.store.run_grid import RunGrid, grid

HOPPER = 15.23  # a random policy's return


def _grid(root: Path, scores: dict[tuple[str, int], list[float]]) -> RunGrid:
    return grid(
        write_run(root, label, seed, capacity=k, sampled=HOPPER + score)
        for (label, k), held in scores.items()
        for seed, score in enumerate(held)
    )


def test_retention_is_counted_from_a_random_policy(tmp_path: Path) -> None:
    """(score − random) at K = 8 and K = 1: 250 of 1,000."""
    assert random_returns(["Hopper-v5"], "sampled") == {"Hopper-v5": HOPPER}
    found = _grid(tmp_path, {("vaco", 1): [900.0, 1100.0], ("vaco", 8): [200.0, 300.0]})
    kept = retention(found, "vaco", 8, "sampled")
    assert kept is not None and kept.low is not None and kept.high is not None
    assert kept.share == pytest.approx(0.25) and kept.low < 0.25 < kept.high
    assert retention(found, "vaco", 1, "sampled") == Retention(1.0, None, None)


def test_one_seed_has_no_interval(tmp_path: Path) -> None:
    found = _grid(tmp_path, {("vaco", 1): [1000.0], ("vaco", 8): [500.0]})
    assert retention(found, "vaco", 8, "sampled") == Retention(pytest.approx(0.5), None, None)


@pytest.mark.parametrize(("gain", "learnt"), [(99.0, False), (101.0, True)])
def test_method_with_little_gain_has_no_retention(tmp_path: Path, gain: float, learnt: bool) -> None:
    found = _grid(tmp_path, {("spo", 1): [1000.0], ("vaco", 1): [gain], ("vaco", 8): [50.0]})
    assert (retention(found, "vaco", 8, "sampled") is not None) == learnt


def test_retention_needs_a_method_that_learnt(tmp_path: Path) -> None:
    found = _grid(tmp_path, {("vaco", 1): [-5.0], ("vaco", 8): [-50.0]})
    assert retention(found, "vaco", 8, "sampled") is None
    assert retention(found, "vaco", 4, "sampled") is None


def test_accuracies_are_counted_from_zero(tmp_path: Path) -> None:
    found = grid(
        write_run(tmp_path, "vaco", 0, kind="language", env="gsm8k", capacity=k, sampled=score)
        for k, score in ((1, 0.5), (8, 0.4))
    )
    kept = retention(found, "vaco", 8, "sampled", accuracy=True)
    assert kept == Retention(pytest.approx(0.8), None, None)
