"""The simulation against what is known without it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from simulated import lengths, simulated

from staleharness.pipeline import closed_form
from staleharness.pipeline.settings import Pipeline
from staleharness.pipeline.simulation import simulate
from staleharness.pipeline.summary import summary

MEAN = 1000  # decisions of a row

# At a load near 1 a queue of one batch is now full and now empty, which the fluid formula does not know.
GRID = [
    (slots, batch, capacity, load, cv, group)
    for slots, batch, capacity, load, cv, group in itertools.product(
        (120, 240, 480), (120, 240), (1, 2), (0.6, 0.8, 1.3, 1.6), (0.5, 1.0), (1, 8)
    )
    if slots >= batch
]


def loaded(slots: int, batch: int, capacity: float, load: float, cv: float, group: int) -> Pipeline:
    """A queue that drops its oldest, behind slots that make `load` rows for each that the trainer can train."""
    return Pipeline(
        slots=slots, workers=1, group=group, batch=batch, capacity=capacity, full="drop_oldest",
        lengths=f"lognormal[mean={MEAN},cv={cv}]", token_seconds=0.02,
        train_seconds=load * batch * MEAN * 0.02 / slots, steps=300,
    )  # fmt: skip


def compared(slots: int, batch: int, capacity: float, load: float, cv: float, group: int) -> float:
    """Mean lag over the closed form's, seed 0."""
    pipeline = loaded(slots, batch, capacity, load, cv, group)
    tail = closed_form.tail(lengths(8192, group=group, batch=batch, lengths=pipeline.lengths), group)
    expected = sum(closed_form.mean_lag(slots, batch, capacity, load, tail))
    found = summary(simulate(pipeline))
    rate = slots / (MEAN * 0.02)  # rows a second
    assert found["step_seconds"] == pytest.approx(
        closed_form.step_seconds(rate, rate / load, batch), rel=0.06
    )
    return float(found["lag"]["start_mean"]) / expected


@pytest.mark.parametrize("setting", GRID[::12], ids=str)
def test_mean_lag_is_that_of_the_closed_form(setting: tuple[int, int, float, float, float, int]) -> None:
    assert compared(*setting) == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_mean_lag_is_that_of_the_closed_form_over_the_whole_grid() -> None:
    ratios = {setting: compared(*setting) for setting in GRID}
    assert {s: r for s, r in ratios.items() if abs(r - 1) > 0.05} == {}
    assert abs(np.mean(list(ratios.values())) - 1) < 0.01


@pytest.mark.parametrize(
    "concurrency, batch, capacity, load, tail, expected",
    [  # the closed form at the parameters that its authors print; they measured 1.26, 3.59, 3.09, 3.40, 1.92, 2.01
        (120, 240, 2, 0.63, 1.42, 1.34), (240, 120, 2, 0.92, 1.43, 3.78), (128, 128, 2, 1.07, 1.44, 3.25),
        (240, 120, 1, 0.86, 1.42, 3.70), (120, 120, 1, 0.67, 1.42, 2.09), (128, 128, 1, 1.14, 1.45, 2.21),
    ],
)  # fmt: skip
def test_the_closed_form_at_its_authors_settings(
    concurrency: int, batch: int, capacity: float, load: float, tail: float, expected: float
) -> None:
    assert sum(closed_form.mean_lag(concurrency, batch, capacity, load, tail)) == pytest.approx(
        expected, abs=0.006
    )


@pytest.mark.parametrize(
    "slots, batch, capacity, load, measured",
    [(120, 240, 2, 0.63, 1.26), (240, 120, 2, 0.92, 3.59), (128, 128, 2, 1.07, 3.09),
     (240, 120, 1, 0.86, 3.40), (120, 120, 1, 0.67, 1.92), (128, 128, 1, 1.14, 2.01)],
)  # fmt: skip
def test_mean_lag_is_near_what_its_authors_measured(
    slots: int, batch: int, capacity: float, load: float, measured: float
) -> None:
    """Their lengths are not published; these have a tail of 1.43 in groups of 8, as they report."""
    pipeline = loaded(slots, batch, capacity, load, 0.27, 8)
    assert closed_form.tail(lengths(8192, lengths=pipeline.lengths), 8) == pytest.approx(1.43, abs=0.02)
    assert summary(simulate(pipeline))["lag"]["start_mean"] == pytest.approx(measured, rel=0.09)


@pytest.mark.parametrize("cv", [0.5, 1.0])
@pytest.mark.parametrize("lag", [0, 1, 2])
def test_units_of_generation_as_megatron_has_them(lag: int, cv: float) -> None:
    """Batch by batch every row is exactly `lag` old; by groups and rows the two laws hold in the mean."""
    settings = {
        "slots": (1 + lag) * 64, "batch": 64, "group": 8, "train_seconds": 0.01, "steps": 300,
        "lengths": f"lognormal[mean={MEAN},cv={cv}]",
    }  # fmt: skip
    sample = lengths(8192, **settings)
    group, batch = (closed_form.tail(sample, unit) for unit in (8, 64))
    by = {
        "B/B": simulated(**settings, unit="batch", order="submitted", cap=float(lag)),
        "G/G": simulated(**settings, unit="group"),
        "G/B": simulated(**settings, unit="group", order="submitted"),
        "R/G": simulated(**settings, unit="row"),
        "R/B": simulated(**settings, unit="row", order="submitted"),
    }
    exact = by["B/B"]["lag"]["rows"]
    assert set(exact) == {str(lag)}
    for mode, tails in {"G/G": (group, group), "R/G": (1.0, group)}.items():
        expected = closed_form.megatron_lag(lag, *tails)
        assert by[mode]["lag"]["start_mean"] == pytest.approx(expected, rel=0.05), mode
        assert by[mode]["slots"]["working"] == pytest.approx(closed_form.utilisation(tails[0]), rel=0.05), (
            mode
        )
    assert by["B/B"]["slots"]["working"] <= 1.05 * closed_form.utilisation(batch)
    for matched, coarse in (("G/G", "G/B"), ("R/G", "R/B")):  # a coarser unit for the trainer only costs
        assert by[coarse]["slots"]["working"] == pytest.approx(by[matched]["slots"]["working"], rel=0.01)
        assert by[coarse]["lag"]["start_mean"] > 1.1 * by[matched]["lag"]["start_mean"]


@pytest.mark.parametrize(
    "group, cap, window",
    [(8, 0, 1), (8, 2, 1), (8, 2, 2), (8, 2, 9), (8, 2, 10), (8, 3, 17), (1, 3, 1), (1, 3, 65), (1, 1, 66)],
)
def test_no_row_is_older_than_the_window_allows_and_some_are_as_old(
    group: int, cap: int, window: int
) -> None:
    found = simulated(
        group=group, batch=64, slots=(cap + 1) * 64, cap=float(cap), order="window", window=window,
        lengths="lognormal[mean=1000,cv=3]", steps=400,
    )  # fmt: skip
    assert found["lag"]["start_max"] == closed_form.windowed_bound(cap, window, 64 // group)


@pytest.mark.parametrize("cv", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("cap", [1, 2, 4, 8])
def test_mean_lag_is_the_cap_where_admission_binds(cap: int, cv: float) -> None:
    found = simulated(
        slots=640, cap=float(cap), lengths=f"lognormal[mean=1000,cv={cv}]", train_seconds=3, steps=400
    )
    assert found["binds"] == "admission"
    assert found["lag"]["start_mean"] == pytest.approx(cap, rel=0.02)
    assert found["lag"]["start_max"] > 1.9 * cap  # the cap bounds the mean and no single row


@pytest.mark.parametrize("load", [0.4, 0.7, 0.9])
@pytest.mark.parametrize("group", [1, 8])
def test_littles_law(group: int, load: float) -> None:
    """Rows on the way at each new version, in batches, are the mean lag; and rows on the way at any time are what
    comes a second, times the seconds that one is on its way."""
    train = load * 64 * 20 / 96
    record = simulate(Pipeline(slots=96, workers=1, group=group, train_seconds=train, steps=400))
    lag = summary(record)["lag"]
    assert lag["start_mean"] == pytest.approx(lag["under_way"], rel=0.02)
    rows = record.step >= record.warm
    left = record.step_began[record.step[rows]]
    at = np.linspace(record.since, record.step_began[-1], 20_001)
    gone = np.sort(record.step_began[record.step[record.step >= 0]])
    under_way = np.searchsorted(record.began, at, side="right") - np.searchsorted(gone, at, side="right")
    rate = rows.sum() / (record.step_began[-1] - record.since)
    assert under_way.mean() == pytest.approx(rate * (left - record.began[rows]).mean(), rel=0.03)
