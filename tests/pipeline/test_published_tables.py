"""The shape of published tables: who gains, where it stops, and what it costs. Sources: the tests' docstrings."""

from __future__ import annotations

from typing import Any

import pytest
from summaries import summary_of


def test_a_larger_threshold_removes_waiting_until_slots_are_full() -> None:
    """verl, fully asynchronous, 7B on 128 GPUs, thresholds 0, .1, .3, .5: step 231, 171, 146, 151 s, of which the
    trainer waits for 128, 58, 39, 33."""
    found = [
        summary_of(
            slots=40,
            cap=4 * (1 + threshold) - 1,
            sync_every=4,
            sync_seconds=1,
            in_flight="switch",
            max_tokens=8000,
            train_seconds=25,
        )
        for threshold in (0, 0.1, 0.3, 0.5, 1.0)
    ]
    step = [s["step_seconds"] for s in found]
    waits = [s["step_seconds"] * s["trainer"]["waiting"] for s in found]
    assert waits == sorted(waits, reverse=True) and step == sorted(step, reverse=True)
    assert step[0] / step[3] > 1.4
    assert step[0] - step[1] > step[1] - step[2] > step[3] - step[4]  # ever less is gained
    assert step[3] == pytest.approx(step[4], rel=0.05)
    assert [s["binds"] for s in found] == ["admission"] * 3 + ["generation"] * 2


@pytest.mark.parametrize("generation, training", [(240, 245), (100, 385), (400, 85), (240, 240)])
def test_two_halves_gain_nothing_on_rows_of_one_length(generation: float, training: float) -> None:
    """verl, 30B, 16 GPUs together against 8 and 8: 485 against 490 s, bound by the update. Half of the machines take
    twice as long, so max(2 g, 2 t) is never below g + t: what asynchrony gains, it gains from what stands still."""
    settings: dict[str, Any] = {"batch": 128, "group": 8, "token_seconds": 0.02, "steps": 40}
    tokens = generation / 0.02
    together = summary_of(slots=128, cap=0.0, lengths=f"constant:{tokens}", train_seconds=training, **settings)
    halves = summary_of(slots=64, cap=2.0, lengths=f"constant:{tokens}", train_seconds=2 * training, **settings)
    assert together["step_seconds"] == pytest.approx(generation + training, rel=0.01)
    assert halves["step_seconds"] == pytest.approx(2 * max(generation, training), rel=0.06)
    assert halves["step_seconds"] >= 0.98 * together["step_seconds"]


def test_two_halves_gain_where_long_rows_leave_machines_idle() -> None:
    """The other side of it: AReaL 2.77 times at most, verl 2.35, Laminar more on more machines."""
    settings: dict[str, Any] = {"batch": 128, "lengths": "lognormal[mean=5000,cv=1]", "steps": 100}
    together = summary_of(slots=128, cap=0.0, train_seconds=100, **settings)
    halves = summary_of(slots=64, cap=8.0, train_seconds=200, **settings)
    assert 1.5 < together["step_seconds"] / halves["step_seconds"] < 4


def test_a_cap_is_not_a_lag() -> None:
    """prime-rl 0.9, caps 2, 4, 6, 8: mean ages 1.62, 2.83, 3.28, 3.03, share at the cap 64, 32, 2, 0 %."""
    found = [
        summary_of(slots=80, max_lag=cap, lengths="lognormal[mean=1000,cv=0.6]", train_seconds=11)["lag"]
        for cap in (2, 4, 6, 8)
    ]
    age, share = [f["start_mean"] for f in found], [f["share_at_bound"] for f in found]
    assert age == pytest.approx([1.62, 2.83, 3.28, 3.03], rel=0.15)
    assert age[2] == pytest.approx(age[3], rel=0.05)
    assert share[0] > 0.5 and share[1] < share[0] and share[2] < 0.1 and share[3] < 0.02


@pytest.mark.parametrize(
    "lengths, four", [("lognormal[mean=500,cv=0.3]", (1.0, 1.1)), ("lognormal[mean=4000,cv=1.5]", (1.2, 1.6))]
)
def test_short_rows_need_a_cap_of_four_and_long_ones_of_eight(lengths: str, four: tuple[float, float]) -> None:
    """The stable-asynchrony survey's figure of time a step against K: K = 4 on the floor, or a third above it."""
    mean = float(lengths.split("=")[1].split(",")[0])
    step = {
        cap: summary_of(slots=120, cap=cap, lengths=lengths, max_tokens=32_000, train_seconds=0.02 * mean * 64 / 120)[
            "step_seconds"
        ]
        for cap in (4.0, 8.0, None)
    }
    assert four[0] - 0.01 < step[4.0] / step[None] < four[1]
    assert step[8.0] / step[None] < 1.12


def test_dropping_stale_rows_favours_short_ones() -> None:
    """Applied Compute: with a queue that drops its oldest the lengths stay as they are; with a largest lag of 1 and
    a heavy tail the mean of the trained ones falls from 1354 to 897."""
    settings: dict[str, Any] = {
        "slots": 120,
        "batch": 120,
        "group": 1,
        "lengths": "lognormal[mean=1354,cv=2]",
        "max_tokens": 20_000,
        "train_seconds": 20,
        "capacity": 2.0,
        "full": "drop_oldest",
    }
    free = summary_of(**settings)["lag"]
    drop = summary_of(**settings, max_lag=1)["lag"]
    again = summary_of(**settings, max_lag=1, stale="recycle")["lag"]
    assert free["tokens_trained_mean"] == pytest.approx(free["tokens_begun_mean"], rel=0.03)
    assert drop["tokens_trained_mean"] < 0.7 * drop["tokens_begun_mean"]
    assert again["tokens_trained_mean"] == pytest.approx(free["tokens_trained_mean"], rel=0.05)
    assert drop["start_max"] <= 1 and again["start_max"] <= 1


def test_weights_in_flight_are_faster_than_draining() -> None:
    """AReaL: interruptible generation +12 to +17 %; and the newest decisions are younger."""
    by = {
        mode: summary_of(
            slots=128,
            cap=4.0,
            in_flight=mode,
            blocking=False,
            sync_seconds=1,
            recompute_seconds=1e-4,
            lengths="lognormal[mean=1000,cv=0.5]",
            train_seconds=10,
        )
        for mode in ("drain", "keep", "switch")
    }
    assert by["switch"]["rows_per_second"] > 1.12 * by["drain"]["rows_per_second"]
    lag = {mode: s["lag"]["token_weighted_mean"] for mode, s in by.items()}
    assert lag["switch"] < lag["keep"]
    assert by["drain"]["lag"]["newest_mean"] == by["drain"]["lag"]["oldest_mean"]
    assert by["switch"]["lag"]["newest_mean"] < by["switch"]["lag"]["oldest_mean"]
    assert by["switch"]["slots"]["recompute"] > 0


def test_a_restart_that_forgets_rows_exceeds_the_bound() -> None:
    """AReaL#1388: after a recovery the lag is above max_head_offpolicyness."""
    settings: dict[str, Any] = {"slots": 128, "unit": "batch", "cap": 1.0, "order": "submitted", "trainer_mtbf": 300.0}
    assert summary_of(**settings)["lag"]["start_max"] == 1
    assert summary_of(**settings, counters="forget")["lag"]["start_max"] > 1
