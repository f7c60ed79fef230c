"""Where some runs of a cell fell and others never did, the mean time of the fall is a lower bound, and said so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from results_helper import write_run

from staleharness.figures.baseline_tests import differences_from_baseline
from staleharness.figures.reward_falls import collapse
from staleharness.statistics.results import Results, load


def test_a_mean_over_the_runs_that_fell_is_a_bound_where_others_never_did(tmp_path: Path) -> None:
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


def test_holms_family_is_said_to_be_a_panel_where_there_are_several(tmp_path: Path) -> None:
    for env in ("Hopper-v5", "Walker2d-v5"):
        for label in ("ppo_clip", "spo"):
            for seed in range(3):
                write_run(tmp_path / env, label, seed, env=env, sampled=100.0 + seed**2, phases=4)
                write_run(tmp_path / "both", label, seed, env=env, sampled=100.0 + seed**2, phases=4)
    for folder, words in (("both", "for all rows of a panel."), ("Hopper-v5", "for all rows.")):
        results = load(tmp_path / folder)
        figure = differences_from_baseline(results, results.table(reps=50, engine="quick"))
        assert words in " ".join(figure._suptitle.get_text().split())  # type: ignore[attr-defined]
