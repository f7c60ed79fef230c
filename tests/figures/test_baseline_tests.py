"""Welch's tests against a baseline: best method first, a dot per run, dark bars for significant differences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn import second_line
from results_helper import write_run
from scipy.stats import ttest_ind

from staleharness.errors import UserError
from staleharness.figures.comparisons import differences_from_baseline
from staleharness.statistics import aggregate as stats
from staleharness.statistics.results import Results, load
from staleharness.statistics.table import Table

LEVELS = {"ppo_clip": 0.6, "vaco": 0.9, "tis": 0.2, "a3po": 0.61}
NOISE = np.random.default_rng(3).normal(0, 0.03, (4, 5))


@pytest.fixture(scope="module")
def language_runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Table]:
    root = tmp_path_factory.mktemp("apart")
    runs = [
        write_run(
            root,
            label,
            seed,
            kind="language",
            env="word-problems",
            capacity=k,
            sampled=level + NOISE[i, seed],
            deterministic=level + NOISE[i, seed],
            phases=4,
        )
        for i, (label, level) in enumerate(LEVELS.items())
        for seed in range(5)
        for k in (1, 16)
    ]
    return Results.of(runs), stats.table(runs, reps=50, engine="quick")


def test_methods_stand_best_first_with_a_dot_per_run(language_runs: tuple[Results, Table]) -> None:
    (ax,) = differences_from_baseline(*language_runs).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["VACO", "A-3PO", "PPO-clip", "TIS"]
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in dots] == [5] * 4  # those of K = 16 alone
    assert list(dots[0].get_xdata()) == pytest.approx(list(0.9 + NOISE[1]))


def test_significant_methods_are_dark_with_a_bold_name(language_runs: tuple[Results, Table]) -> None:
    (ax,) = differences_from_baseline(*language_runs).axes
    dark = [bar.get_alpha() > 0.5 for bar in ax.patches]
    assert dark == [True, False, True]  # vaco, a3po, tis; the baseline has no bar
    bold = {text.get_text(): text.get_fontweight() for text in ax.get_yticklabels()}
    assert bold == {"VACO": "bold", "A-3PO": "normal", "PPO-clip": "normal", "TIS": "bold"}
    welch = ttest_ind(NOISE[1], NOISE[0], equal_var=False).confidence_interval(0.95)
    bar = ax.patches[0]
    assert bar.get_x() + bar.get_width() / 2 == pytest.approx(np.mean(0.9 + NOISE[1]))
    assert bar.get_width() == pytest.approx(welch.high - welch.low)


def test_the_second_line_says_how_many_pairs_are_told_apart(language_runs: tuple[Results, Table]) -> None:
    text = second_line(differences_from_baseline(*language_runs))
    assert "5 of 6 pairs told apart" in text and "F = " in text and "Holm" in text and "n = 5" in text


def test_beside_is_compared_with_the_baseline_alone(language_runs: tuple[Results, Table]) -> None:
    figure = differences_from_baseline(*language_runs, beside="vaco")
    text = second_line(figure)
    assert "2 of 3 pairs told apart" in text and len(figure.axes[0].patches) == 3


def test_another_baseline_or_capacity_must_be_there(language_runs: tuple[Results, Table]) -> None:
    (ax,) = differences_from_baseline(*language_runs, baseline="tis", k=1).axes
    assert len(ax.patches) == 3
    with pytest.raises(UserError, match="did you mean 'ppo_clip'"):
        differences_from_baseline(*language_runs, baseline="ppo_clp")
    with pytest.raises(UserError, match="k=8"):
        differences_from_baseline(*language_runs, k=8)


def test_one_run_a_method_is_shown_and_nothing_is_claimed(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, label, 0, kind="language", env="word-problems", capacity=16, sampled=x, phases=4)
        for label, x in LEVELS.items()
    ]
    figure = differences_from_baseline(Results.of(runs), stats.table(runs, reps=50, engine="quick"))
    assert "one run a method" in second_line(figure)
    assert not figure.axes[0].patches


def test_holms_family_is_the_panel_if_there_are_several(tmp_path: Path) -> None:
    for env in ("Hopper-v5", "Walker2d-v5"):
        for label in ("ppo_clip", "spo"):
            for seed in range(3):
                write_run(tmp_path / env, label, seed, env=env, sampled=100.0 + seed**2, phases=4)
                write_run(tmp_path / "both", label, seed, env=env, sampled=100.0 + seed**2, phases=4)
    for folder, words in (("both", "for all rows of a panel."), ("Hopper-v5", "for all rows.")):
        results = load(tmp_path / folder)
        figure = differences_from_baseline(results, results.table(reps=50, engine="quick"))
        assert words in second_line(figure)
