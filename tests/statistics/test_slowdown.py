"""Slowdown: steps at K over steps at K = 1 to the same score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.statistics.bootstrap import stable_seed
from staleharness.statistics.lag_curve import LagCurve, lag_curves
from staleharness.statistics.results import load
from staleharness.statistics.slowdown import Factor, slowdowns, steps_to_reach

RISING = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0]  # evaluations at 8 evenly spaced phases


def curve_of(root: Path, evaluations: dict[int, Any], noise: float = 0.0) -> LagCurve:
    """Runs whose evaluations are given by K, the same for three seeds but for noise."""
    rng = np.random.default_rng(0)
    for k, heights in evaluations.items():
        for seed in range(3):
            curve = [h + noise * float(rng.standard_normal()) for h in heights]
            write_run(root, "vaco", seed, capacity=k, env="Mine-v0", curve=curve, phases=8, sampled=100.0 / k)
    ((curve_,), _) = lag_curves(load(root), zero=0.0)
    return curve_


@pytest.mark.parametrize(
    "curve, goal, steps",
    [([1, 3, 5], 4, 25), ([1, 3, 5], 3, 20), ([1, 3, 5], 0.5, 10), ([1, 3, 5], 6, np.inf), ([2, 2, 2], 2, 10)],
    ids=str,
)
def test_a_goal_is_reached_on_the_line_between_two_evaluations(curve: Any, goal: float, steps: float) -> None:
    found = steps_to_reach(np.array([curve], dtype=float), np.array([10.0, 20.0, 30.0]), np.array([float(goal)]))
    assert found[0] == pytest.approx(steps)


def test_half_the_speed_is_a_slowdown_of_two(tmp_path: Path) -> None:
    curve = curve_of(tmp_path, {1: RISING, 4: [h / 2 for h in RISING], 16: [1.0] * 8})
    half, never = slowdowns(curve, "sampled")
    assert (half.k, half.target) == (4, 40.0) and half.steps == 4 * 2048
    assert half.factor == half.low == half.high == Factor(pytest.approx(2.0))
    assert never.factor == Factor(2.0, never=True)  # 8 evaluations over 4: the longest that there could be
    assert (half.factor.words, never.factor.words) == ("2.0", "> 2.0")
    (quarter, _) = slowdowns(curve, "sampled", level=0.25)
    assert quarter.factor.value == pytest.approx(2.0) and quarter.target == 20.0
    assert never.to_json()["factor"] == {"factor": 2.0, "kind": "at least"}


@pytest.mark.parametrize("seeds", [(0, 1, 2), (0, 1, 2, 3)], ids=["paired", "independent"])
def test_resamples_without_a_target_are_left_out(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    """One resample in 27 has the failed seed alone: more of them than are beyond one end of the interval."""
    for k, mine in ((1, (0, 1, 2)), (4, seeds)):
        for seed in mine:
            curve = [-5.0] * 8 if seed == 2 else [h / k + seed for h in RISING]
            write_run(tmp_path, "vaco", seed, capacity=k, env="Mine-v0", curve=curve, phases=8, sampled=9.0 / k)
    ((curve_,), _) = lag_curves(load(tmp_path), zero=0.0)
    (found,) = slowdowns(curve_, "sampled")
    assert 0.0 < found.low.value <= found.factor.value <= found.high.value


def test_nothing_is_said_beyond_what_the_runs_can_show(tmp_path: Path) -> None:
    """One of three seeds is there at once, so that resamples of it have the stale runs 7.5 times as slow; the runs as
    they are have room for 4 times."""
    for seed in range(3):
        fresh = [80.0] * 8 if seed == 2 else RISING
        for k, curve in ((1, fresh), (4, [0.0] * 7 + [80.0])):
            write_run(tmp_path, "vaco", seed, capacity=k, env="Mine-v0", curve=curve, phases=8, sampled=80.0)
    ((curve_,), _) = lag_curves(load(tmp_path), zero=0.0)
    (found,) = slowdowns(curve_, "sampled")
    assert found.factor == Factor(pytest.approx(3.75)) and found.high == Factor(4.0, never=True)


def test_runs_that_never_arrive_give_a_bound(tmp_path: Path) -> None:
    """The mean of the three synchronous seeds is there at the second evaluation of eight, so the stale runs are more
    than 4 times as slow; eight resamples in 27 have only the two slow seeds, there at the fourth: more than twice."""
    for seed in range(3):
        fresh = [80.0] * 8 if seed == 2 else RISING
        for k, curve in ((1, fresh), (4, [1.0] * 8)):
            write_run(tmp_path, "vaco", seed, capacity=k, env="Mine-v0", curve=curve, phases=8, sampled=80.0 / k)
    ((curve_,), _) = lag_curves(load(tmp_path), zero=0.0)
    (found,) = slowdowns(curve_, "sampled")
    assert found.factor == found.high == Factor(pytest.approx(4.0), never=True)
    assert found.low == Factor(pytest.approx(2.0))


def test_a_score_counts_from_the_first_time_on(tmp_path: Path) -> None:
    early = [0.0, 80.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    (found,) = slowdowns(curve_of(tmp_path, {1: RISING, 4: early}), "sampled")
    assert found.factor.value == pytest.approx(1.5 / 4)


def test_interval_equals_a_slow_reference(tmp_path: Path) -> None:
    curve = curve_of(tmp_path, {1: RISING, 4: [0.7 * h for h in RISING]}, noise=12.0)
    (found,) = slowdowns(curve, "sampled", reps=200)
    evaluations = [np.stack([r.column("eval_sampled") for r in runs]) for runs in curve.runs]
    steps = 2048.0 * np.arange(1, 9)
    places = np.random.default_rng(stable_seed("slowdown", "vaco", "Mine-v0")).integers(3, size=(200, 3))

    def slow(place: Any) -> float:
        fresh, stale = (
            np.maximum.accumulate(h[place].mean(axis=0)) for h in evaluations
        )  # the IQM of three is the mean
        times = []
        for heights in (fresh, stale):
            goal = fresh[-1] / 2
            i = next((i for i, h in enumerate(heights) if h >= goal), None)
            if i is None:
                times.append(np.inf)
            elif i == 0:
                times.append(steps[0])
            else:
                part = (goal - heights[i - 1]) / (heights[i] - heights[i - 1])
                times.append(steps[i - 1] + part * 2048)
        return times[1] / times[0]

    assert found.factor.value == pytest.approx(slow(np.arange(3)))
    many = sorted(slow(place) for place in places)
    ends = [found.low, found.high]
    for end, expected in zip(ends, (many[4], many[194]), strict=True):
        bound = 8 * 2048 / found.steps
        assert end.never == (expected > bound) and end.value == pytest.approx(min(expected, bound))
    assert found.low.value < found.factor.value < found.high.value


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    apart = curve_of(tmp_path / "a", {1: RISING, 4: RISING[:4]})
    with pytest.raises(UserError, match="were not evaluated at the same steps"):
        slowdowns(apart, "sampled")
    with pytest.raises(UserError, match="were evaluated fewer than twice"):
        slowdowns(curve_of(tmp_path / "b", {1: [50.0], 4: [50.0]}), "sampled")
    with pytest.raises(UserError, match="never score above zero"):
        slowdowns(curve_of(tmp_path / "c", {1: [-5.0] * 8, 4: RISING}), "sampled")
