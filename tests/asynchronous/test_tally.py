"""What an actor counts of itself is read by another process, as it was a moment ago."""

from __future__ import annotations

import multiprocessing

from staleharness.asynchronous.tally import Progress, Tally
from staleharness.simulator.ledger import Count


def test_a_tally_has_the_progress_of_one_group() -> None:
    tally = Tally(multiprocessing.get_context("forkserver"), rows=2, stretches=3)
    assert tally.read(0) is None
    tally.begin(0, 2.5)
    assert tally.read(0) is None, "no version is there yet"
    tally.add_stretch(4, 0)
    tally.reach([3, 3])
    tally.add_stretch(6, 3)
    tally.reach([5, 4])
    found = tally.read(0)
    assert found == Progress([4, 6], [0, 3], [5, 4], 2.5) and found.count == Count(2, 9)
    assert tally.read(1) is None, "its actor has not begun with that one"
    tally.begin(1, 4.0)
    assert tally.read(0) is None
    tally.add_stretch(7, 0)
    assert tally.read(1) == Progress([7], [0], [0, 0], 4.0)
