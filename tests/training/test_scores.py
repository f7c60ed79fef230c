"""Means, standard errors and intervals of an evaluation."""

from __future__ import annotations

import pytest

from staleharness.training.phase_record import Scores, wilson


def test_mean_and_standard_error_by_hand() -> None:
    """1, 2, 3, 6: mean 3, squares 4 + 1 + 0 + 9 = 14, variance 14/3 with n − 1, error √(14/12)."""
    scores = Scores({"sampled": [1.0, 2.0, 3.0, 6.0], "deterministic": [5.0]}, {}, 0)
    assert scores.mean("sampled") == 3.0
    assert scores.error("sampled") == pytest.approx((14 / 12) ** 0.5)
    assert scores.error("deterministic") == 0.0


def test_wilsons_interval_by_hand() -> None:
    """40 of 100: centre (0.4 + z²/200)/(1 + z²/100) = 0.40370, half width 0.09430."""
    low, high = wilson(40, 100)
    assert (low, high) == (pytest.approx(0.3094, abs=1e-4), pytest.approx(0.4980, abs=1e-4))
    assert wilson(0, 10) == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert wilson(10, 10) == (pytest.approx(0.7225, abs=1e-4), pytest.approx(1.0))
