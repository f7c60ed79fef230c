"""Lag models give versions that the buffer holds, and the buffer holds the newest ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from staleharness.buffer import PolicyBuffer, Version
from staleharness.errors import UserError
from staleharness.lag import Fixed, LagModel, Uniform, parse_lag

capacities = st.integers(1, 70)
phases = st.integers(0, 200)


@st.composite
def models(draw: st.DrawFn) -> tuple[LagModel, int]:
    capacity = draw(capacities)
    lag = draw(st.integers(0, capacity - 1))
    return draw(
        st.sampled_from([parse_lag("uniform", capacity), parse_lag(f"fixed:{lag}", capacity)])
    ), capacity


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
    "text", ["", "Uniform", "fixed", "fixed:", "fixed:-1", "fixed:1.5", "fixed:1e99", "fixed:4"]
)
def test_what_is_no_lag_model_of_this_buffer_is_one_line(text: str) -> None:
    with pytest.raises(UserError, match="LAG") as error:
        parse_lag(text, 4)
    assert "\n" not in str(error.value)
