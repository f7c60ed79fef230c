"""The figure of methods told apart: best first, a dot per run, dark where a test tells a method from the baseline."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.figures.baseline_tests import differences_from_baseline
from staleharness.statistics import aggregate as stats
from staleharness.statistics.results import Results
from staleharness.statistics.table import Table

LEVELS = {"ppo_clip": 0.6, "vaco": 0.9, "tis": 0.2, "a3po": 0.61}
NOISE = np.random.default_rng(3).normal(0, 0.03, (4, 5))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Results, Table]:
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


def test_methods_stand_best_first_with_a_dot_per_run(found: tuple[Results, Table]) -> None:
    (ax,) = differences_from_baseline(*found).axes
    assert [text.get_text() for text in ax.get_yticklabels()] == ["VACO", "A-3PO", "PPO-clip", "TIS"]
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [len(line.get_xdata()) for line in dots] == [5] * 4  # those of K = 16 alone
    assert list(dots[0].get_xdata()) == pytest.approx(list(0.9 + NOISE[1]))


def test_what_a_test_tells_from_the_baseline_is_dark_and_named_in_bold(found: tuple[Results, Table]) -> None:
    (ax,) = differences_from_baseline(*found).axes
    dark = [bar.get_alpha() > 0.5 for bar in ax.patches]
    assert dark == [True, False, True]  # vaco, a3po, tis; the baseline has no bar
    bold = {text.get_text(): text.get_fontweight() for text in ax.get_yticklabels()}
    assert bold == {"VACO": "bold", "A-3PO": "normal", "PPO-clip": "normal", "TIS": "bold"}
    gaps = 0.3 + NOISE[1] - NOISE[0]
    bar = ax.patches[0]
    assert bar.get_x() + bar.get_width() / 2 == pytest.approx(np.mean(0.9 + NOISE[1]))
    assert bar.get_width() == pytest.approx(2 * 2.776445 * gaps.std(ddof=1) / np.sqrt(5), rel=1e-5)


def test_the_second_line_says_how_many_pairs_are_told_apart(found: tuple[Results, Table]) -> None:
    said = " ".join(differences_from_baseline(*found)._suptitle.get_text().split())  # type: ignore[attr-defined]
    assert "5 of 6 pairs told apart" in said and "F = " in said and "Holm" in said and "n = 5" in said


def test_what_stands_beside_is_compared_with_the_baseline_and_is_no_method(found: tuple[Results, Table]) -> None:
    figure = differences_from_baseline(*found, beside="vaco")
    said = " ".join(figure._suptitle.get_text().split())  # type: ignore[attr-defined]
    assert "2 of 3 pairs told apart" in said and len(figure.axes[0].patches) == 3


def test_another_baseline_or_capacity_must_be_there(found: tuple[Results, Table]) -> None:
    (ax,) = differences_from_baseline(*found, baseline="tis", k=1).axes
    assert len(ax.patches) == 3
    with pytest.raises(UserError, match="did you mean 'ppo_clip'"):
        differences_from_baseline(*found, baseline="ppo_clp")
    with pytest.raises(UserError, match="k=8"):
        differences_from_baseline(*found, k=8)


def test_one_run_a_method_is_shown_and_nothing_is_claimed(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, label, 0, kind="language", env="word-problems", capacity=16, sampled=x, phases=4)
        for label, x in LEVELS.items()
    ]
    figure = differences_from_baseline(Results.of(runs), stats.table(runs, reps=50, engine="quick"))
    assert "one run a method" in " ".join(figure._suptitle.get_text().split())  # type: ignore[attr-defined]
    assert not figure.axes[0].patches
