"""The mean lag that a lag model has with a full buffer, and what a run of so many phases has of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from staleharness.control.spec import ControlSpec
from staleharness.errors import UserError
from staleharness.lag import Assignment, Draw, LagModel, keep, read_lag
from staleharness.training.version_assignment import ExpectedLag, expected_lag


def expected_of(lag: str, capacity: int, phases: int, **settings: int) -> ExpectedLag | None:
    spec = ControlSpec(
        env="Hopper-v5",
        algorithm="spo",
        capacity=capacity,
        lag=lag,
        steps=phases * 64,
        num_envs=2,
        num_steps=32,
        **settings,
    )
    return expected_lag(spec, read_lag(lag))


def test_a_buffer_that_fills_has_less_lag_than_a_full_one() -> None:
    assert expected_of("uniform", 8, 4) == ExpectedLag(3.5, 7, (0 + 0.5 + 1.0 + 1.5) / 4)
    assert expected_of("oldest", 8, 4) == ExpectedLag(7.0, 7, 1.5)
    assert expected_of("fixed:2", 8, 4) == ExpectedLag(2.0, 2, (0 + 1 + 2 + 2) / 4)


@pytest.mark.parametrize("every", [1, 3, 8, 100])
def test_a_model_with_a_period_is_seen_in_all_of_it(every: int) -> None:
    found = expected_of(f"sync:{every}", 100, 10 * every)
    assert found is not None and found.cap == every - 1
    assert found.mean == pytest.approx((every - 1) / 2, rel=0.1) == found.expected


@pytest.mark.parametrize("every, phases", [(3, 600), (5, 1_200), (101, 2_020)])
def test_no_period_is_met_always_at_the_same_phase(every: int, phases: int) -> None:
    found = expected_of(f"sync:{every}", every, phases)
    assert found is not None and found.cap == every - 1
    assert found.mean == pytest.approx((every - 1) / 2, rel=0.1) == found.expected


def test_expected_lag_depends_on_run_length_and_warm_start() -> None:
    long, warm = expected_of("uniform", 16, 3000), expected_of("oldest", 4, 8, warm_phases=4)
    assert long is not None and long.expected == pytest.approx(long.mean, rel=0.01) == 7.5
    assert warm == ExpectedLag(3.0, 3, 1.5)  # half of the phases, at full lag
    assert expected_of("oldest", 1, 8) == ExpectedLag(0.0, 0, 0.0)


def test_a_capacity_beyond_reason_takes_no_time_and_is_a_lower_bound() -> None:
    found = expected_of("uniform", 10**9, 45)
    assert found is not None and found.mean > 500 and found.expected == 11.0


@pytest.mark.parametrize(
    ("lag", "cap"), [("uniform", 1_999), ("oldest", 1_999), ("fixed:1500", 1_500), ("sync:1200", 1_199), ("fixed:2", 2)]
)
def test_the_largest_lag_of_a_wide_buffer_is_that_of_all_of_it(lag: str, cap: int) -> None:
    found = expected_of(lag, 2_000, 2_500)
    assert found is not None and found.cap == cap


def test_a_run_shorter_than_its_buffer_never_has_the_largest_lag() -> None:
    found = expected_of("uniform", 10**9, 1_500)
    assert found is not None and found.cap >= 1_500


@dataclass(frozen=True)
class Silent(LagModel):
    """Says no probabilities."""

    def assign(self, draw: Draw) -> Assignment:
        return keep(np.full(draw.slots, draw.phase))


def test_a_model_without_probabilities_promises_nothing() -> None:
    assert expected_lag(ControlSpec(env="Hopper-v5", algorithm="spo"), Silent()) is None


@pytest.mark.parametrize(
    "answer",
    [None, {}, {4: 0.3}, {4: float("nan")}, {0: 1.0}, {"a": 1.0}, {4: 2.0, 3: -1.0}, {4: None}, {4: [0.5, 0.5]}],
    ids=str,
)
def test_probabilities_that_are_no_distribution_are_refused(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ControlSpec(env="Hopper-v5", algorithm="spo", capacity=4)
    monkeypatch.setattr(Silent, "name", "silent", raising=False)
    monkeypatch.setattr(Silent, "probabilities", lambda model, phase, _: answer if phase == 4 else {phase: 1.0})
    with pytest.raises(UserError, match=r"^LAG=silent: probabilities\(4, 4\) returns .*versions 1 to 4, adding up to"):
        expected_lag(spec, Silent())
    monkeypatch.setattr(Silent, "probabilities", lambda model, phase, _: {0: 0.0, phase: np.float32(1.0)})
    assert expected_lag(spec, Silent()) == ExpectedLag(0.0, 0, 0.0)
