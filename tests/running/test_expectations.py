"""What is said of lag before anything runs."""

from __future__ import annotations

import pytest

from staleharness.api import plan
from staleharness.running.forecast import lag_notes


def lines(**asked: object) -> list[str]:
    return lag_notes(plan(env="Hopper", algo=["spo", "ppo_clip"], seeds=2, **asked))  # type: ignore[arg-type]


def test_a_run_that_is_too_short_for_its_buffer_is_said_once_for_all_methods_and_seeds() -> None:
    (line,) = lines(k=[1, 8], steps=8192)
    assert "LAG=uniform at K=8 has a mean lag of 3.50 phases" in line and "0.75 over the 4 phases" in line


@pytest.mark.parametrize("asked", [{"k": [1, 8]}, {"k": 16, "lag": "fixed:3"}, {"k": 1, "steps": 2048}])
def test_nothing_is_said_where_the_buffer_has_time_to_fill(asked: dict[str, object]) -> None:
    assert lines(**asked) == []


def test_a_capacity_that_no_run_can_fill_is_said() -> None:
    assert "at K=100000 has a mean lag of over 511.50" in lines(k=100_000)[0]
