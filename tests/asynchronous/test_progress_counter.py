"""Counts of an actor's progress, read by another process."""

from __future__ import annotations

import multiprocessing

from staleharness.asynchronous.actor_process import GroupProgress, ProgressCounter
from staleharness.training.sample_ledger import Count


def test_a_counter_has_the_progress_of_one_group() -> None:
    counter = ProgressCounter(multiprocessing.get_context("forkserver"), rows=2, segments=3)
    assert counter.read(0) is None
    counter.begin(0, 2.5)
    assert counter.read(0) is None, "no version is there yet"
    counter.add_segment(4, 0)
    counter.reach([3, 3])
    counter.add_segment(6, 3)
    counter.reach([5, 4])
    found = counter.read(0)
    assert found == GroupProgress([4, 6], [0, 3], [5, 4], 2.5) and found.count == Count(2, 9)
    assert counter.read(1) is None, "its actor has not begun with that one"
    counter.begin(1, 4.0)
    assert counter.read(0) is None
    counter.add_segment(7, 0)
    assert counter.read(1) == GroupProgress([7], [0], [0, 0], 4.0)
