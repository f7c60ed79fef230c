from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def witness() -> Iterator[object]:
    """The method `witness` is registered, and this is what it sees (`witness.Seen`)."""
    from witness import Seen, Witness

    from staleharness.algorithm import ALGORITHMS

    Witness.seen = Seen()
    ALGORITHMS.register("witness")(Witness)
    yield Witness.seen
    del ALGORITHMS._classes["witness"]
