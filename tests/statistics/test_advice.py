"""Advice: what may be taken, what is told apart, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.logs.lag_log import LagLog
from staleharness.pipeline.pipeline_summary import CapResult
from staleharness.statistics.advice import Advice, advise
from staleharness.statistics.power import power, seeds_needed
from staleharness.statistics.results import Results, load

LAGS = {1: 0.0, 4: 2.0, 16: 8.0}
CAPS = [
    CapResult(0, 0.0, 100.0, "admission", "slots stand idle"),
    CapResult(1, 1.0, 50.0, "admission", "slots stand idle"),
    CapResult(4, 4.0, 20.0, "generation", "the slots work"),
    CapResult(64, 40.0, 10.0, "trainer", "the trainer works"),
]


def write(root: Path, label: str, scores: tuple[float, float, float], env: str = "word-problems") -> None:
    """Five seeds with a spread of 0.01 at each lag of `LAGS`."""
    for (k, lag), score in zip(LAGS.items(), scores, strict=True):
        summary = {"lag_mean": lag, "gradient_lag_mean": 10 * lag}
        for seed in range(5):
            given = {"kind": "language", "env": env, "capacity": k, "said": {"summary": summary}}
            write_run(root, label, seed, deterministic=score + 0.005 * (seed - 2), **given)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Results:
    root = tmp_path_factory.mktemp("stored")
    write(root, "vaco", (0.9, 0.9, 0.9))  # takes everything
    write(root, "spo", (0.95, 0.95, 0.38))  # 5 % are lost at 2 + 6 / 12
    write(root, "impala", (0.8, 0.4, 0.2))  # takes nothing
    return load(root)


def row(found: Advice, algorithm: str) -> dict[str, object]:
    return next(m.row for m in found.methods if m.curve.algorithm == algorithm)


def test_budgets_are_numbers_or_bounds(runs: Results) -> None:
    found = advise(runs)
    assert row(found, "vaco")["budget"] == {"lag": 8.0, "kind": "at least"}
    assert row(found, "impala")["budget"] == {"lag": 2.0, "kind": "below"}
    budget = row(found, "spo")["budget"]
    assert budget == {"lag": pytest.approx(2.5), "kind": "="}
    assert found.frontier == [] and found.refusals == [] and found.envs == ["word-problems"]
    assert row(found, "spo")["gradient_steps_per_phase"] == pytest.approx(10)


def test_the_cap_to_take_is_the_fastest_within_the_budget_and_the_data(runs: Results) -> None:
    found = advise(runs, caps=CAPS)
    taken = {m.curve.algorithm: m.row["recommended"]["cap"] for m in found.methods}
    # vaco keeps everything at all measured lags, and no lag of 40 was measured; spo's budget is 2.5; impala keeps 75 %
    # at lag 1 if the line is believed, but nothing was measured there
    assert taken == {"vaco": 4, "spo": 1, "impala": 0}
    beyond = row(found, "vaco")["caps"][3]
    assert beyond["kept"] is None and beyond["refused"] == "lag 40.0 is beyond the data (largest measured: 8.0)"
    assert row(found, "spo")["caps"][2]["score"] == pytest.approx(0.95 - 0.57 / 3)
    assert "64" not in found.methods[0].scores


def test_nothing_is_taken_on_the_word_of_the_line_between_lag_0_and_the_smallest_measured(tmp_path: Path) -> None:
    write(tmp_path, "vaco", (0.9, 0.84, 0.5))
    log = LagLog("run.csv", "lag", "versions", np.array([1.0]), np.ones(1), "", 1)
    (method,) = advise(load(tmp_path), caps=CAPS, log=log).methods
    at_one = method.row["caps"][1]
    assert at_one["kept_low"] > 0.95 and method.row["recommended"]["cap"] == 0
    assert method.row["log"]["verdict"] == "cannot tell"


def test_the_best_at_each_speed_is_named_with_those_that_cannot_be_told_from_it(runs: Results) -> None:
    found = advise(runs, caps=CAPS)
    assert [(p["cap"], p["algorithm"], p["binds"]) for p in found.frontier] == [
        (4, "vaco", "generation"),
        (1, "spo", "admission"),
    ]
    assert [p["speed_up"] for p in found.frontier] == [5, 2]
    assert [p["cannot_be_told_from"] for p in found.frontier] == [[], []]
    assert found.frontier[0]["score_low"] < 0.9 < found.frontier[0]["score_high"]


def test_methods_with_equal_scores_cannot_be_told_apart(tmp_path: Path) -> None:
    for label in ("vaco", "spo"):
        write(tmp_path, label, (0.9, 0.9, 0.9))
    (first,) = advise(load(tmp_path), caps=CAPS).frontier
    (other,) = first["cannot_be_told_from"]
    assert {first["algorithm"], other["algorithm"]} == {"vaco", "spo"} and other["seeds_to_tell"] is None


def test_the_seeds_that_would_tell_two_methods_apart(tmp_path: Path) -> None:
    write(tmp_path, "vaco", (0.9, 0.9, 0.9))
    write(tmp_path, "spo", (0.896, 0.896, 0.896))
    (first,) = advise(load(tmp_path), caps=CAPS[:3]).frontier
    (other,) = first["cannot_be_told_from"]
    n = seeds_needed(0.004 / (0.005 * np.sqrt(2.5)))
    assert (first["algorithm"], other) == ("vaco", {"algorithm": "spo", "seeds_to_tell": n}) and n > 5


@pytest.mark.parametrize(
    "lag, unit, updates, at, verdicts",
    [
        (1.0, "versions", None, 1.0, ("kept", "kept", "cannot tell")),
        (5.0, "versions", None, 5.0, ("kept", "lost", "lost")),
        (50.0, "gradient_steps", None, 5.0, ("kept", "lost", "lost")),
        (50.0, "gradient_steps", 4.0, 5.0, ("kept", "lost", "lost")),
        (5.0, "versions", 4.0, 2.0, ("kept", "kept", "lost")),
        (9.0, "versions", None, 9.0, ("beyond the data",) * 3),
        (0.0, "versions", None, 0.0, ("kept",) * 3),
    ],
)
def test_a_log_is_placed_on_the_curves(
    runs: Results, lag: float, unit: str, updates: float | None, at: float, verdicts: tuple[str, ...]
) -> None:
    log = LagLog("run.csv", "lag", unit, np.array([lag]), np.ones(1), "", 1)
    found = advise(runs, log=log, updates=updates)
    placed = [row(found, name)["log"] for name in ("vaco", "spo", "impala")]
    assert [p["lag"] for p in placed] == pytest.approx([at] * 3)
    assert tuple(p["verdict"] for p in placed) == verdicts


def test_gradient_steps_are_refused_where_runs_did_not_count_them(tmp_path: Path) -> None:
    for k in (1, 4):
        for seed in range(3):
            write_run(tmp_path, "vaco", seed, capacity=k)
    log = LagLog("run.csv", "lag", "gradient_steps", np.ones(1), np.ones(1), "", 1)
    with pytest.raises(UserError, match="its runs do not say how many gradient steps a phase has"):
        advise(load(tmp_path), log=log)


def test_a_method_that_learned_nothing_without_lag_is_refused_and_the_others_are_not(tmp_path: Path) -> None:
    write(tmp_path, "vaco", (0.9, 0.9, 0.9))
    write(tmp_path, "spo", (0.001, 0.0, 0.0))
    found = advise(load(tmp_path))
    assert [m.curve.algorithm for m in found.methods] == ["vaco"]
    (refusal,) = found.refusals
    assert refusal.algorithm == "spo" and "are not clearly above zero (a score of 0)" in refusal.reason


def test_power_is_in_the_rows(runs: Results) -> None:
    spo = row(advise(runs), "spo")
    assert spo["spread"] == pytest.approx(0.005 * np.sqrt(2.5))
    assert spo["loss_to_see"] == pytest.approx(0.05 * 0.95)
    assert spo["seeds_to_see_it"] == 2 and spo["seeds_checked"] == pytest.approx(
        power(2, 0.0475 / spo["spread"]), abs=0.1
    )
    same, far = spo["points"][1:]
    assert same["p"] == pytest.approx(1) and same["seeds_to_see_it"] is None
    assert far["p"] < 1e-6 and far["seeds_to_see_it"] == 2


@pytest.mark.parametrize(
    "options, words",
    [({"keep": 1.0}, "KEEP=1 must be above 0 and below 1"), ({"updates": 0.0}, "UPDATES=0 must be above 0")],
    ids=["keep", "updates"],
)
def test_impossible_numbers_are_refused(runs: Results, options: dict[str, float], words: str) -> None:
    with pytest.raises(UserError, match=words):
        advise(runs, **options)
