"""Every method against every other: chances that add up to 1, and Hedges' g by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from results_helper import write_run

from staleharness.pages.report_contents import squares
from staleharness.statistics.results import Results
from staleharness.statistics.significance import hedges_g, method_pairs


def test_hedges_g_is_the_difference_in_pooled_deviations_corrected_for_few_runs() -> None:
    a, b = np.array([3.0, 5.0, 7.0]), np.array([1.0, 2.0, 3.0])
    pooled = np.sqrt((8.0 + 2.0) / 4.0)
    assert hedges_g([a], [b]) == pytest.approx(3.0 / pooled * (1.0 - 3.0 / 15.0))
    assert hedges_g([a], [b]) == pytest.approx(-hedges_g([b], [a]))  # type: ignore[operator]
    assert hedges_g([a, a], [b, b]) == pytest.approx(hedges_g([a], [b]))
    assert hedges_g([a[:1]], [b[:1]]) is None and hedges_g([a[:1].repeat(2)], [a[:1].repeat(2)]) is None


def test_a_pair_and_its_mirror_image_add_up_to_one(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, x, s, sampled=10.0 * i + 9.0 * s, phases=2) for i, x in enumerate("ab") for s in range(3)
    ]
    there, back = method_pairs(Results.of(runs).grid, "sampled", reps=200)
    assert (there["a"], there["b"], there["n_envs"]) == ("a", "b", 1)
    # 0, 9, 18 against 10, 19, 28: of nine pairs one is won, 18 over 10
    assert there["probability"] == pytest.approx(1 / 9) and back["probability"] == pytest.approx(8 / 9)
    assert there["low"] == pytest.approx(1.0 - back["high"]) and there["effect"] == pytest.approx(-back["effect"])
    assert 0.0 <= there["low"] <= there["probability"] <= there["high"] < 1.0


def test_no_pair_without_a_shared_environment_and_no_interval_from_one_run(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "a", 0, sampled=1.0, phases=2), write_run(tmp_path, "b", 0, sampled=2.0, phases=2)]
    first, _ = method_pairs(Results.of(runs).grid, "sampled")
    assert first["low"] is None and first["effect"] is None and first["probability"] == 0.0
    assert method_pairs(Results.of(runs[:1]).grid, "sampled") == [] and squares([], {}) == []
