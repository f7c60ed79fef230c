"""Lag models give versions that the buffer holds, and the buffer holds the newest ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from staleharness.buffer import PolicyBuffer, Version
from staleharness.errors import UserError
from staleharness.lag import Fixed, Geometric, LagModel, Synced, Uniform, along, parse_lag, stretch_length

capacities = st.integers(1, 70)
phases = st.integers(0, 200)


@st.composite
def models(draw: st.DrawFn) -> tuple[LagModel, int]:
    capacity = draw(capacities)
    lag, period = draw(st.integers(0, capacity - 1)), draw(st.integers(1, 90))
    text = draw(
        st.sampled_from(["uniform", f"fixed:{lag}", "geometric:0.7", "geometric:1", "geometric:0.001"])
    )
    text = draw(st.sampled_from([text, f"{text}/sync:{period}", f"sync:{min(period, capacity)}"]))
    return parse_lag(text, capacity), capacity


def filled(capacity: int, phase: int) -> PolicyBuffer:
    """The buffer as it stands when versions are assigned in `phase`."""
    buffer = PolicyBuffer(capacity)
    for version in range(phase + 1):
        buffer.push(Version(version, 10 * version, {}))
    return buffer


@given(models(), phases, st.integers(1, 50), st.integers(0, 2**32))
def test_every_assigned_version_is_in_the_buffer(
    model: tuple[LagModel, int], phase: int, slots: int, seed: int
) -> None:
    lag_model, capacity = model
    buffer = filled(capacity, phase)
    versions = lag_model.assign(phase, slots, np.random.default_rng(seed))
    assert versions.shape == (slots,)
    assert all(version in buffer for version in versions.tolist())


@given(models(), phases)
def test_probabilities_cover_versions_in_the_buffer_and_sum_to_one(
    model: tuple[LagModel, int], phase: int
) -> None:
    lag_model, capacity = model
    probabilities = lag_model.probabilities(phase)
    buffer = filled(capacity, phase)
    assert all(version in buffer and p > 0 for version, p in probabilities.items())
    assert sum(probabilities.values()) == pytest.approx(1.0)


@given(models(), phases, st.integers(0, 2**32))
def test_what_is_assigned_is_what_the_probabilities_say_may_be(
    model: tuple[LagModel, int], phase: int, seed: int
) -> None:
    lag_model, _ = model
    drawn = set(lag_model.assign(phase, 64, np.random.default_rng(seed)).tolist())
    assert drawn <= set(lag_model.probabilities(phase))


def test_uniform_gives_every_version_its_share_the_newest_and_the_last_kept_included() -> None:
    model, phase, slots = Uniform(8), 20, 80_000
    versions = model.assign(phase, slots, np.random.default_rng(0))
    counts = np.bincount(phase - versions, minlength=8)
    assert len(counts) == 8
    chi_squared = float(((counts - slots / 8) ** 2 / (slots / 8)).sum())
    assert chi_squared < 24.3  # the 0.999 quantile with 7 degrees of freedom
    assert float((phase - versions).mean()) == pytest.approx((8 - 1) / 2, abs=0.05)


def test_before_the_buffer_is_full_uniform_draws_from_what_there_is() -> None:
    assert Uniform(64).probabilities(2) == {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}
    assert set(Uniform(64).assign(0, 9, np.random.default_rng(0)).tolist()) == {0}


def test_fixed_is_as_far_behind_as_it_can_be() -> None:
    assert [Fixed(3).assign(phase, 1, np.random.default_rng(0)).item() for phase in range(6)] == [
        0,
        0,
        0,
        0,
        1,
        2,
    ]


def test_geometric_halves_the_share_with_each_phase_of_lag() -> None:
    """decay ½ over four versions: 8, 4, 2, 1 of 15."""
    model, phase, slots = parse_lag("geometric:0.5", 4), 20, 60_000
    expected = {20: 8 / 15, 19: 4 / 15, 18: 2 / 15, 17: 1 / 15}
    assert model.probabilities(phase) == pytest.approx(expected)
    counts = np.bincount(phase - model.assign(phase, slots, np.random.default_rng(0)), minlength=4)
    share = np.array([8, 4, 2, 1]) / 15
    assert float(((counts - slots * share) ** 2 / (slots * share)).sum()) < 16.3  # 0.999 quantile, 3 degrees


def test_before_the_buffer_is_full_geometric_shares_what_there_is() -> None:
    assert Geometric(0.5, 64).probabilities(1) == pytest.approx({1: 2 / 3, 0: 1 / 3})


@given(capacities, phases)
def test_a_decay_of_one_is_uniform(capacity: int, phase: int) -> None:
    said = parse_lag("geometric:1.0", capacity).probabilities(phase)
    assert said == pytest.approx(Uniform(capacity).probabilities(phase))


def test_a_share_too_small_for_a_number_is_no_share() -> None:
    assert set(Geometric(1e-300, 8).probabilities(20)) == {20, 19}


@given(models(), phases, st.integers(1, 90), st.integers(0, 2**32))
def test_after_a_sync_nothing_older_is_used(
    model: tuple[LagModel, int], phase: int, period: int, seed: int
) -> None:
    synced = Synced(model[0], period)
    lag = phase - synced.assign(phase, 20, np.random.default_rng(seed))
    assert lag.max() <= phase % period
    assert synced.oldest(phase) == phase - phase % period
    if phase % period == 0:
        assert synced.probabilities(phase) == {phase: 1.0}


@given(models(), phases)
def test_a_sync_that_never_comes_changes_nothing(model: tuple[LagModel, int], phase: int) -> None:
    synced = Synced(model[0], 1000)
    assert synced.probabilities(phase) == model[0].probabilities(phase)
    one, other = (m.assign(phase, 9, np.random.default_rng(1)) for m in (synced, model[0]))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("capacity", [1, 2, 9])
def test_the_oldest_version_is_k_minus_one_phases_behind(capacity: int) -> None:
    model, rng = parse_lag("oldest", capacity), np.random.default_rng(0)
    lags = [phase - model.assign(phase, 1, rng).item() for phase in range(12)]
    assert lags == [min(phase, capacity - 1) for phase in range(12)]
    assert parse_lag("oldest/sync:3", 9) == Synced(model=parse_lag("fixed:8", 9), period=3)


def test_a_sync_alone_is_a_sawtooth() -> None:
    model, rng = parse_lag("sync:3", 3), np.random.default_rng(0)
    assert [phase - model.assign(phase, 1, rng).item() for phase in range(8)] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert parse_lag("sync:3", 3) == parse_lag("fixed:2/sync:3", 3)


def test_between_syncs_a_model_draws_as_if_the_run_had_just_begun() -> None:
    """Phase 18 is two after the sync at 16: three versions, of which a buffer of two keeps the newest."""
    assert parse_lag("uniform/sync:8", 8).probabilities(18) == {16: 1 / 3, 17: 1 / 3, 18: 1 / 3}
    assert parse_lag("uniform/sync:8", 2).probabilities(18) == {17: 1 / 2, 18: 1 / 2}
    assert parse_lag("fixed:5/sync:8", 6).probabilities(18) == {16: 1.0}
    assert parse_lag("geometric:0.5/sync:8", 6).probabilities(17) == pytest.approx({17: 2 / 3, 16: 1 / 3})


def test_in_flight_a_sequence_takes_the_next_version_with_every_stretch_up_to_the_newest() -> None:
    starts = np.array([0, 2, 3])
    model = parse_lag("inflight:4", 4)
    assert stretch_length(model) == 4 and model.probabilities(3) == parse_lag("uniform", 4).probabilities(3)
    assert along(model, starts, 3, 10).tolist() == [[0, 1, 2], [2, 3, 3], [3, 3, 3]]
    assert along(model, starts, 3, 8).tolist() == [[0, 1], [2, 3], [3, 3]]
    assert along(parse_lag("uniform", 4), starts, 3, 10).tolist() == [[0], [2], [3]]


@given(capacities, phases)
def test_the_buffer_holds_the_newest_capacity_versions_first_in_first_out(capacity: int, phase: int) -> None:
    buffer = filled(capacity, phase)
    held = [version for version in range(phase + 1) if version in buffer]
    assert held == list(range(max(0, phase + 1 - capacity), phase + 1))
    assert len(buffer) == min(capacity, phase + 1)
    assert buffer.newest.phase == phase
    assert [buffer[version].gradient_step for version in held] == [10 * version for version in held]
    restored = PolicyBuffer(capacity)
    restored.load_state_dict(buffer.state_dict())
    assert restored.state_dict() == buffer.state_dict()


@pytest.mark.parametrize(
    "text",
    " Uniform fixed fixed: fixed:-1 fixed:1.5 fixed:1e99 fixed:4 geometric geometric:0 geometric:1.01 geometric:-0.5 "
    "geometric:. geometric:half oldest:2 Oldest sync sync:0 sync:5 sync:1.5 uniform/ uniform/sync uniform/sync:0 "
    "uniform/fixed:1 /sync:2 sync:2/sync:2 fixed:4/sync:2 uniform/sync:2/sync:2".split(" "),
)
def test_what_is_no_lag_model_of_this_buffer_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match="LAG") as error:
        parse_lag(text, 4)
    assert "\n" not in str(error.value)
