"""Few runs are shown as runs; what readers call a method."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from results_helper import write_grid, write_run

from staleharness.statistics.aggregate import MIN_RUNS, SHARE_COVERED, coverage_text, show_single_runs
from staleharness.statistics.bootstrap import iqm
from staleharness.statistics.method_labels import display_label
from staleharness.statistics.results import Results
from staleharness.statistics.table import has_small_samples


def test_rows_of_few_runs_lose_their_intervals_and_get_their_runs(tmp_path: Path) -> None:
    few = write_grid(tmp_path / "a", ("vaco",), capacities=(4,), seeds=2, phases=6)
    many = write_grid(tmp_path / "b", ("spo",), capacities=(4,), seeds=MIN_RUNS, phases=6)
    results = Results.of([*few, *many])
    table = results.table(reps=50, engine="quick")
    made = show_single_runs(table, results.grid)
    rows = {row["algorithm"]: row for row in made.rows}
    before = {row["algorithm"]: row for row in table.rows}
    assert rows["spo"] == before["spo"] and rows["spo"]["iqm_low"] is not None
    assert rows["vaco"]["iqm"] == before["vaco"]["iqm"] and rows["vaco"]["iqm_low"] is None
    dots = rows["vaco"]["dots"]
    assert sum(dots["iqm"]) / 2 == pytest.approx(rows["vaco"]["iqm"]) and len(dots["auc"]) == 2
    assert sum(dots["optimality_gap"]) / 2 == pytest.approx(rows["vaco"]["optimality_gap"])
    assert has_small_samples(made) and not has_small_samples(table) and made.settings["fewest"] == MIN_RUNS


def test_a_run_above_1_has_no_gap(tmp_path: Path) -> None:
    """The score of 1 is the best run of PPO at K = 1, and that of 0 its worst."""
    runs = [write_run(tmp_path, "ppo_clip", s, capacity=1, sampled=100.0 * s, phases=4) for s in range(2)]
    runs += [write_run(tmp_path, "vaco", s, capacity=4, sampled=x, phases=4) for s, x in enumerate((50.0, 150.0))]
    results = Results.of(runs)
    table = results.table(reps=50, engine="quick", normalise="ppo")
    (row,) = [r for r in show_single_runs(table, results.grid).rows if r["algorithm"] == "vaco"]
    assert row["dots"]["iqm"] == [0.5, 1.5]
    assert row["dots"]["optimality_gap"] == [0.5, 0.0] and row["optimality_gap"] == pytest.approx(0.25)


def test_methods_are_called_as_readers_know_them() -> None:
    for label, said in (
        ("ppo_clip", "PPO-clip"),
        ("vaco[delta=0.8]", "VACO, δ = 0.8"),
        ("mine", "mine"),
        ("vaco[delta=0.05] N=4", "VACO, δ = 0.05, N = 4"),
        ("tis[lag=fixed:12]", "TIS, lag 12"),
        ("vaco[advantage=gae,trust_region=clip]", "VACO, advantage gae, trust region clip"),
    ):
        assert display_label(label) == said
    names = {"vaco": "ours", "ppo_clip[clip_high=0.272]": "clip"}
    assert (
        display_label("vaco", names) == "ours"
        and display_label("ppo_clip[clip_high=0.272] N=4", names) == "clip, N = 4"
    )


@pytest.mark.parametrize("seeds", SHARE_COVERED)
def test_real_coverage_is_as_said(seeds: int) -> None:
    """Percentile intervals of the mean and of the IQM of normal scores, simulated."""
    rng, covered = np.random.default_rng(seeds), np.zeros(2)
    for _ in range(1500):
        scores = rng.normal(size=seeds)
        draws = scores[rng.integers(seeds, size=(400, seeds))]
        for i, values in enumerate((draws.mean(axis=1), iqm(draws))):
            low, high = np.percentile(values, [2.5, 97.5])
            covered[i] += low <= 0 <= high
    assert covered / 1500 == pytest.approx(SHARE_COVERED[seeds], abs=0.025)
    mean, middle = SHARE_COVERED[seeds]
    assert f"{mean:.0%}" in coverage_text(seeds) and f"{middle:.0%}" in coverage_text(seeds) and not coverage_text(7)
