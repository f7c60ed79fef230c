"""Long work before a run's first phase: it is heard now and then, and ends when the process is asked to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from staleharness.base import cancellation
from staleharness.errors import Interrupted


@pytest.fixture(autouse=True)
def nobody_listens_afterwards() -> Iterator[None]:
    yield
    cancellation.listen(lambda: False)


def test_what_is_done_is_heard_at_once_and_then_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(cancellation.time, "monotonic", lambda: clock[0])
    heard: list[str] = []
    cancellation.listen(lambda: False, heard.append)
    for step in range(8):
        cancellation.report(f"step {step}")
        clock[0] += 0.4
    assert heard == ["step 0", "step 3", "step 6"]  # 0.0, 1.2 and 2.4 s


def test_who_is_asked_to_end_says_where_it_was() -> None:
    asked = iter([False, True])
    cancellation.listen(lambda: next(asked))
    cancellation.report("loading")
    with pytest.raises(Interrupted, match=r"^stopped before the first phase \(reading\)$"):
        cancellation.report("reading")


def test_what_takes_long_within_a_phase_is_ended_and_says_nothing() -> None:
    heard: list[str] = []
    asked = iter([False, True])
    cancellation.listen(lambda: next(asked), heard.append)
    cancellation.check_stop("an evaluation")
    with pytest.raises(Interrupted, match=r"^stopped during an evaluation$"):
        cancellation.check_stop("an evaluation")
    assert heard == []
