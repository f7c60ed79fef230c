"""Progress reports of long work before a run's first phase, and its end on a requested stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from staleharness.base import cancellation
from staleharness.errors import Interrupted


@pytest.fixture(autouse=True)
def remove_listener() -> Iterator[None]:
    yield
    cancellation.listen(lambda: False)


def test_progress_is_reported_at_once_and_then_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(cancellation.time, "monotonic", lambda: clock[0])
    reports: list[str] = []
    cancellation.listen(lambda: False, reports.append)
    for step in range(8):
        cancellation.report(f"step {step}")
        clock[0] += 0.4
    assert reports == ["step 0", "step 3", "step 6"]  # 0.0, 1.2 and 2.4 s


def test_a_requested_stop_names_the_activity() -> None:
    stop_requests = iter([False, True])
    cancellation.listen(lambda: next(stop_requests))
    cancellation.report("loading")
    with pytest.raises(Interrupted, match=r"^stopped before the first phase \(reading\)$"):
        cancellation.report("reading")


def test_a_check_within_a_phase_stops_and_reports_nothing() -> None:
    reports: list[str] = []
    stop_requests = iter([False, True])
    cancellation.listen(lambda: next(stop_requests), reports.append)
    cancellation.check_stop("an evaluation")
    with pytest.raises(Interrupted, match=r"^stopped during an evaluation$"):
        cancellation.check_stop("an evaluation")
    assert reports == []
