"""Budgets of several studies: a panel per study and environment, a dot per seed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.figures.plot_layout import COLUMN
from staleharness.figures.registry import draw
from staleharness.figures.retention_and_slowdown import budgets, interval, kept_shares
from staleharness.statistics.claims.study_evidence import Evidence
from staleharness.statistics.results import Results

ZERO = 15.23  # what a random policy returns on Hopper-v5


def study(root: Path, seeds: int, shares: dict[str, float], env: str = "Hopper-v5", phases: int = 3) -> Results:
    runs = []
    for label, share in shares.items():
        for seed in range(seeds):
            runs.append(write_run(root, label, seed, env=env, capacity=1, sampled=ZERO + 100.0, phases=phases))
            stale = ZERO + 100 * (share + 0.01 * seed)
            runs.append(write_run(root, label, seed, env=env, capacity=16, sampled=stale, phases=phases))
    return Results.of(runs)


def test_each_study_has_its_panel_and_each_seed_its_dot(tmp_path: Path) -> None:
    small = study(tmp_path / "a", 5, {"vaco": 0.3, "ppo_clip": 0.2, "spo": 0.1})
    large = study(tmp_path / "b", 1, {"vaco": 0.8, "ppo_clip": 0.4}, phases=5)
    table = small.table(reps=50, engine="quick")
    figure = budgets(small, table, beside={"large": large})
    assert any("3 to 5 phases" in " ".join(t.get_text().split()) for t in figure.texts)  # of both
    titles = [ax.get_title(loc="left").partition("\n")[0] for ax in figure.axes]
    assert titles == ["Hopper-v5, n = 5", "Hopper-v5, n = 1"]
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["VACO", "PPO-clip", "SPO"]
    first, second = figure.axes
    dots = [line.get_xdata().tolist() for line in first.lines if line.get_marker() == "o"]
    assert dots[0] == pytest.approx([0.3, 0.31, 0.32, 0.33, 0.34])
    assert len(first.patches) == 3 and not second.patches  # an interval of five seeds, none of one
    assert kept_shares(Evidence(large, table), "Hopper-v5", 16)["vaco"].tolist() == pytest.approx([0.8])


def test_bars_include_the_uncertainty_of_scores_without_lag(tmp_path: Path) -> None:
    """Equal scores at K = 16: all that is uncertain is what they are a share of."""
    fresh = [80.0, 90.0, 100.0, 110.0, 120.0]
    runs = [
        write_run(tmp_path, "vaco", seed, env="Hopper-v5", capacity=k, sampled=ZERO + gain)
        for seed, at_1 in enumerate(fresh)
        for k, gain in ((1, at_1), (16, 50.0))
    ]
    results = Results.of(runs)
    evidence = Evidence(results, results.table(reps=50, engine="quick"))
    left_out = [50 / np.mean(np.delete(fresh, i)) for i in range(5)]  # the jackknife, written out
    pseudo = [5 * 0.5 - 4 * share for share in left_out]
    reach = 2.7764 * np.std(pseudo, ddof=1) / np.sqrt(5)  # Student's t with 4 degrees of freedom
    ends = interval(evidence, "vaco", "Hopper-v5", 16)
    assert kept_shares(evidence, "Hopper-v5", 16)["vaco"].mean() == pytest.approx(0.5)
    assert ends == pytest.approx((0.5 - reach, 0.5 + reach), abs=1e-4)
    (bar,) = budgets(results, evidence.table).axes[0].patches
    assert bar.get_extents().transformed(bar.axes.transData.inverted()).intervalx.tolist() == pytest.approx(
        list(ends), abs=1e-4
    )


def test_the_line_is_in_the_middle_of_its_bar(tmp_path: Path) -> None:
    """Two methods that are one computation at K = 1, one of them with a seed more, share their runs there."""
    runs = [
        write_run(tmp_path, label, seed, env="Hopper-v5", capacity=k, sampled=ZERO + gain + 5 * seed)
        for label, seeds in (("ppo_clip", 6), ("a3po", 5))
        for seed in range(seeds)
        for k, gain in ((1, 80.0 + 30 * (seed == 5)), (16, 50.0))
    ]
    results = Results.of(runs)
    evidence = Evidence(results, results.table(reps=50, engine="quick"))
    shares = kept_shares(evidence, "Hopper-v5", 16)
    assert evidence.computation("a3po", 1) == evidence.computation("ppo_clip", 1)
    for label, values in shares.items():
        low, high = interval(evidence, label, "Hopper-v5", 16)
        assert low is not None and high is not None
        assert values.mean() == pytest.approx((low + high) / 2, abs=0.02), label
    assert shares["a3po"].mean() == pytest.approx(60 / np.mean([80, 85, 90, 95, 100, 135]))


def test_a_panel_without_a_measured_lag_does_not_name_one(tmp_path: Path) -> None:
    run: dict[str, Any] = {"sampled": ZERO + 100, "said": {"summary": {}}}
    runs = [write_run(tmp_path, capacity=k, phases=5, settings={"fill_phases": 2}, **run) for k in (1, 16)]
    results = Results.of(runs)
    (ax,) = budgets(results, results.table(reps=50, engine="quick")).axes
    assert ax.get_title(loc="left").splitlines()[-1] == "3 × 80"  # phases that fill the buffer are not in the budget


def test_an_environment_that_only_the_large_one_has_gets_a_panel_too(tmp_path: Path) -> None:
    small = study(tmp_path / "a", 2, {"vaco": 0.3})
    large = study(tmp_path / "b", 2, {"vaco": 0.8}, env="Walker2d-v5")
    figure = budgets(small, small.table(reps=50, engine="quick"), beside={"large": large})
    assert [ax.get_title(loc="left").partition(",")[0] for ax in figure.axes] == ["Hopper-v5", "Walker2d-v5"]
    with pytest.raises(UserError, match="no study has runs at K=1 and K=64"):
        budgets(small, small.table(reps=50, engine="quick"), k=64)


def test_shares_that_no_method_has_are_an_empty_panel(tmp_path: Path) -> None:
    """A report has the figure where the usual score has shares, and may be of the other one."""
    runs = [
        write_run(tmp_path, "vaco", seed, capacity=k, sampled=100.0 + seed, deterministic=5.0, phases=3)
        for seed in range(2)
        for k in (1, 8)
    ]
    results = Results.of(runs)
    figure = draw("retained_shares", results, results.table(score="deterministic", reps=50, engine="quick"))
    assert [ax.get_title(loc="left") for ax in figure.axes] == ["K = 8"] and not figure.axes[0].get_yticklabels()
    words = " ".join(" ".join(text.get_text().split()) for text in figure.texts)
    assert "no method learned at K = 1 by deterministic returns" in words


def test_a_retained_share_beyond_the_axis_has_its_number(tmp_path: Path) -> None:
    shares = {"vaco": 0.5, "impala": 3.0, "spo": -4.0}
    figure = draw("retained_shares", study(tmp_path, 3, shares))
    (ax,) = figure.axes
    assert [text.get_text() for text in ax.texts] == ["301%", "-399%"]
    assert [text.get_position()[0] for text in ax.texts] == [ax.get_xlim()[1], ax.get_xlim()[0]]
    assert any("a number: a share beyond the axis" in " ".join(t.get_text().split()) for t in figure.texts)


@pytest.mark.filterwarnings("error")
def test_retained_shares_of_long_names_fit_a_narrow_report(tmp_path: Path) -> None:
    names = [f"ppo_clip[learning_rate={rate},anchor=proximal]" for rate in (0.0001, 0.0003)]
    runs = [
        write_run(tmp_path, name, seed, capacity=k, sampled=900.0 - 30 * k + seed, phases=3)
        for name in names
        for seed in range(3)
        for k in (1, 4, 16)
    ]
    figure = draw("retained_shares", Results.of(runs), width=COLUMN)
    figure.draw_without_rendering()
    assert all(ax.get_window_extent().width > 0.25 * COLUMN * figure.dpi for ax in figure.axes)


def test_an_interval_without_upper_end_has_an_arrow(tmp_path: Path) -> None:
    """One of three stale runs never reaches the level, so that the interval's upper end is open."""
    rising, flat = [20.0, 60.0, 110.0], [20.0, 21.0, 22.0]
    runs = [
        write_run(tmp_path, "vaco", seed, capacity=k, curve=curve, sampled=curve[-1], phases=12)
        for k, curves in ((1, [rising] * 3), (8, [rising, rising, flat]))
        for seed, curve in enumerate(curves)
    ]
    (ax,) = draw("slowdown", Results.of(runs)).axes
    assert [line.get_marker() for line in ax.lines].count(">") == 1


def test_a_slowdown_without_stale_runs_says_what_it_needs(tmp_path: Path) -> None:
    runs = Results.of([write_run(tmp_path, "vaco", seed, capacity=1) for seed in range(3)])
    with pytest.raises(UserError, match="a slowdown needs runs with K above 1"):
        draw("slowdown", runs)
