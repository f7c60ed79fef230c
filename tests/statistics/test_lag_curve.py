"""Score against lag: what becomes a curve, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_helper import write_run

from staleharness.statistics.lag_curve import Refusal, _convert, lag_curves, method_of
from staleharness.statistics.results import load


def write(
    root: Path, label: str = "vaco", capacity: int = 1, seeds: int = 3, score: float = 1000.0, **options: Any
) -> None:
    for seed in range(seeds):
        write_run(root, label, seed, capacity=capacity, sampled=score + seed, **options)


def refusals(root: Path, **options: Any) -> list[Refusal]:
    return lag_curves(load(root), **options)[1]


def test_a_curve_runs_from_the_synchronous_runs_to_the_most_stale(tmp_path: Path) -> None:
    for k, score in ((8, 300.0), (1, 1000.0), (4, 800.0)):
        write(tmp_path, capacity=k, score=score)
    ((curve,), refused) = lag_curves(load(tmp_path))
    assert (curve.algorithm, curve.env, curve.capacities, refused) == ("vaco", "Hopper-v5", (1, 4, 8), [])
    assert curve.lags[0] == 0 and np.all(np.diff(curve.lags) > 0) and curve.is_paired and curve.n == 3
    assert curve.scores[1] == pytest.approx(np.array([800, 801, 802]) - 15.23)  # a random policy on Hopper
    assert curve.zero_note == "a random policy"
    found = load(tmp_path).runs.groupby("K")["lag_mean"].mean()
    assert curve.lags == pytest.approx(found.to_numpy())


def test_lag_settings_are_removed_from_a_label() -> None:
    assert method_of("ppo_clip") == "ppo_clip"
    assert method_of("ppo_clip[lag=fixed:0]") == "ppo_clip"
    assert method_of("tis[cap=8.0,lag=fixed:2,level=token] N=4") == "tis[cap=8.0,level=token] N=4"


def test_runs_without_a_curve_have_a_reason(tmp_path: Path) -> None:
    write(tmp_path, "a3po", 1)
    write(tmp_path, "spo", 4)
    write(tmp_path, "vaco", 1)
    write(tmp_path, "vaco", 4, seeds=2)
    write(tmp_path, "impala", 1)
    write(tmp_path, "impala", 4, settings={"learning_rate": 0.1})
    write(tmp_path, "ppo_kl", 1, env="Mine-v0")
    write(tmp_path, "ppo_kl", 4, env="Mine-v0")
    curves, refused = lag_curves(load(tmp_path))
    assert curves == []
    assert {r.algorithm: r.reason for r in refused} == {
        "a3po": "no stale runs, only runs with lag 0",
        "spo": "no synchronous reference, as there are no runs at K = 1",
        "vaco": "2 seeds at K=4: at least 3 are needed",
        "impala": "runs differ in more than lag: learning_rate=0.1 or null",
        "ppo_kl": "a random policy's score is not known; set ZERO to a number or worst",
    }


def test_the_zero_may_be_given(tmp_path: Path) -> None:
    for k in (1, 4):
        write(tmp_path, capacity=k, env="Mine-v0", score=100.0 * k)
    for zero, at in ((-50, -50.0), ("worst", 100.0)):
        ((curve,), _) = lag_curves(load(tmp_path), zero=zero)
        assert curve.zero == at and curve.scores[0][0] == 100 - at


def test_an_accuracy_begins_at_nothing(tmp_path: Path) -> None:
    for k in (1, 4):
        write(tmp_path, capacity=k, kind="language", env="word-problems", score=0.5)
    ((curve,), _) = lag_curves(load(tmp_path))
    assert (curve.zero, curve.zero_note) == (0.0, "a score of 0")


def test_runs_older_than_a_setting_share_a_curve_with_newer_ones(tmp_path: Path) -> None:
    for k in (1, 8):
        for seed in range(4):  # the last two know of the setting
            newer: dict[str, Any] = {"settings": {"warmth": 0}, "said": {"before": {"warmth": 0}}}
            write_run(tmp_path, "spo", seed, capacity=k, sampled=1000.0, **(newer if seed > 1 else {}))
    ((curve,), refused) = lag_curves(load(tmp_path))
    assert not refused and curve.seeds == ((0, 1, 2, 3),) * 2
    write_run(tmp_path, "spo", 4, capacity=8, settings={"warmth": 5})
    (refusal,) = refusals(tmp_path)
    assert refusal.reason == "runs differ in more than lag: warmth=0 or 5"


def test_lag_models_share_synchronous_runs(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, capacity=4)
    write(tmp_path, capacity=4, settings={"lag": "fixed:2"})
    curves, refused = lag_curves(load(tmp_path))
    assert [c.algorithm for c in curves] == ["vaco (fixed)", "vaco (uniform)"] and refused == []
    assert curves[0].scores[0] is not curves[1].scores[0]
    assert np.array_equal(curves[0].scores[0], curves[1].scores[0])


def test_lag_model_uses_its_own_synchronous_runs(tmp_path: Path) -> None:
    for lag, score in (("uniform", 900.0), ("geometric:0.7", 800.0)):
        for k in (1, 8):
            write(tmp_path, capacity=k, score=score - 10 * k, settings={"lag": lag})
    curves, refused = lag_curves(load(tmp_path))
    assert not refused and [c.algorithm for c in curves] == ["vaco (geometric)", "vaco (uniform)"]
    assert [c.scores[0][0] for c in curves] == pytest.approx([790.0 - 15.23, 890.0 - 15.23])


def test_a_lag_model_takes_the_synchronous_runs_of_one_other(tmp_path: Path) -> None:
    for lag, k in (("uniform", 1), ("geometric:0.7", 1), ("geometric:0.7", 8), ("oldest", 8)):
        write(tmp_path, capacity=k, score=900.0 - 10 * k, settings={"lag": lag})
    curves, refused = lag_curves(load(tmp_path))
    assert not refused and [c.algorithm for c in curves] == ["vaco (geometric)", "vaco (oldest)"]
    assert [c.n for c in curves] == [3, 3]


def test_two_settings_with_one_lag_are_not_joined(tmp_path: Path) -> None:
    write(tmp_path)
    summary = {"lag_mean": 2.0}
    for k in (4, 8):
        write(tmp_path, capacity=k, settings={"lag": "fixed:2"}, said={"summary": summary})
    (refusal,) = refusals(tmp_path)
    assert (
        refusal.reason
        == "two settings have the same mean lag, 2: K=4 LAG=fixed:2 and K=8 LAG=fixed:2; choose one with K or WHERE"
    )


def test_lag_in_gradient_steps_where_runs_recorded_it(tmp_path: Path) -> None:
    for k, lag in ((1, 0.0), (4, 1.5)):
        said = {"summary": {"lag_mean": lag, "gradient_lag_mean": 80 * lag}}
        write(tmp_path, capacity=k, said=said)
    ((curve,), _) = lag_curves(load(tmp_path))
    assert curve.gradient_lags == pytest.approx([0, 120]) and curve.gradient_steps_per_phase == 80


def test_the_settings_around_a_lag(tmp_path: Path) -> None:
    for k, lag in ((1, 0.0), (4, 1.5), (16, 7.0)):
        write(tmp_path, capacity=k, score=100.0 * k, said={"summary": {"lag_mean": lag}})
    ((curve,), _) = lag_curves(load(tmp_path))
    ks = {float(scores[0]): k for scores, k in zip(curve.scores, curve.capacities, strict=True)}
    near = {lag: [ks[float(s[0])] for s in curve.around(lag)] for lag in (0.0, 0.4, 1.5, 2.0, 7.0)}
    assert near == {0.0: [1], 0.4: [1, 4], 1.5: [4], 2.0: [4, 16], 7.0: [16]}


def test_a_lag_beyond_the_last_setting_is_converted_in_proportion() -> None:
    rows, decisions = np.array([0.0, 2.0, 4.0]), np.array([0.0, 3.0, 5.0])
    assert [_convert(lag, rows, decisions) for lag in (1.0, 3.0, 4.0, 8.0)] == pytest.approx([1.5, 4.0, 5.0, 10.0])
    assert _convert(8.0, None, decisions) == _convert(8.0, rows, None) == 8.0
