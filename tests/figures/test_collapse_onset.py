"""Falls of the reward: their time, bounds if a run never fell, and metrics that fall before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import quick
from results_helper import write_run

from staleharness.figures.collapse_onset import collapse, falls, warning_before_fall
from staleharness.statistics.results import Results


def test_the_time_of_a_fall_is_a_bound_if_a_run_never_fell(tmp_path: Path) -> None:
    calm, falling = [0.9] * 30, [0.9] * 12 + [0.1] * 18
    runs = []
    for rate, rewards in ((0.1, (falling, falling)), (0.05, (falling, calm)), (0.02, (calm, calm))):
        for seed, reward in enumerate(rewards):
            own: dict[str, Any] = {
                "settings": {"learning_rate": rate, "lag": "fixed:4"},
                "columns": {"reward": reward},
                "said": {"lag_histogram": {"0": 3, "4": 7}},
            }
            runs.append(write_run(tmp_path, f"tis[learning_rate={rate}]", seed, phases=30, sampled=0.5, **own))
    results = Results.of(runs)
    sheet = collapse(results, results.table(reps=50, engine="quick"), option="learning_rate")
    whole, some, none = (row[0].value for _, row in sheet.blocks[1].rows)
    assert not whole.startswith(">") and none == "–"
    assert some.startswith("> ") and float(some[2:]) == pytest.approx(
        float(whole) / 2, rel=0.05
    )  # half the rate, the same time
    assert ">: the mean of those that fell, where others never did" in sheet.about[0]


def test_the_time_of_a_fall_stands_below_the_score(tmp_path: Path) -> None:
    calm, falling = [0.9] * 30, [0.9] * 12 + [0.1] * 18
    runs = []
    for lag, rate, reward, score in ((0, 0.1, calm, 0.8), (4, 0.1, falling, 0.2), (4, 0.05, calm, 0.7)):
        label = f"tis[lag=fixed:{lag},learning_rate={rate}]"
        settings = {"learning_rate": rate, "lag": f"fixed:{lag}"}
        said = {"lag_histogram": {"0": 3, str(lag): 7}}
        for seed in (0, 1):
            own: dict[str, Any] = {"settings": settings, "columns": {"reward": reward}, "said": said, "phases": 30}
            runs.append(write_run(tmp_path, label, seed, env="word-problems", kind="language", sampled=score, **own))
    results = Results.of(runs)
    made = collapse(results, results.table(reps=50, engine="quick", score="sampled"), option="learning_rate")
    scores, products = made.blocks
    assert list(scores.columns) == ["S = 0", "S = 4"] and [name for name, _ in scores.rows] == ["0.1", "0.05"]
    cells = {name: [(e.value, e.below) for e in row] for name, row in scores.rows}
    (at,) = {step for _, below in cells["0.1"][1:] for step in [below.rstrip(")").split(", ")[-1]]}
    assert cells["0.1"][0] == ("0.80", "(never fell)") and cells["0.1"][1] == ("0.20", f"(fell at {at}, {at})")
    assert cells["0.05"] == [("–", ""), ("0.70", "(never fell)")]
    assert products.rows[0][1][0].value == f"{float(at) * 4 * 0.1:.2g}" and products.rows[1][1][0].value == "–"


def test_a_fall_is_measured_from_the_best_mean_so_far(tmp_path: Path) -> None:
    columns = {"ess": [1.0, 0.4, 0.2, 0.0, 0.9, 0.9], "reward": [0.2, 0.6, 0.6, 0.55, 0.45, 0.0]}
    run = write_run(tmp_path, "tis", 0, phases=6, columns=columns)
    # means of two: 0.7 0.3 0.1 0.45 0.9, and 0.4 0.6 0.575 0.5 0.225
    steps = [2048 * phase for phase in range(1, 7)]
    assert falls(run, "ess", 0.5, 0, 2) == (steps[2], steps[5])
    assert falls(run, "ess", 0.4, 0, 2) == (steps[3], steps[5])
    assert falls(run, "ess", 0.9, 0, 2) == (steps[2], steps[4])
    assert falls(run, "ess", 0.5, steps[0], 2) == (steps[3], steps[5])  # the first phase is not its best
    assert np.isnan(falls(run, "ess", 0.5, steps[2], 2)[0])
    assert np.isnan(falls(run, "ess", 0.1, 0, 2)).all()
    assert np.isnan(falls(run, "nothing", 0.5, 0, 2)).all()
    assert np.isnan(falls(run, "ess", 1.0, 0, 7)).all()
    figure = warning_before_fall(Results.of([run]), quick([run]), metric="ess", name="ESS", share=0.9, window=2)
    assert [list(line.get_xdata()) for line in figure.axes[2].lines] == [[steps[2], steps[4]], [steps[2]], [steps[4]]]


def test_a_reward_that_rises_from_below_zero_has_not_fallen(tmp_path: Path) -> None:
    rising, falling = np.linspace(-10, -1, 20), np.concatenate([np.linspace(-10, 10, 10), np.full(10, 2.0)])
    for seed, (reward, fell) in enumerate(((rising, False), (falling, True))):
        columns = {"reward": reward.tolist(), "ess_sequence": [1.0] * 20}
        run = write_run(tmp_path, "vaco", seed, phases=20, columns=columns)
        assert np.isfinite(falls(run, "reward", 2 / 3, 0, 4)[1]) == fell
