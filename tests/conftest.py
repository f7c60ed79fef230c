from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

# Before torch is loaded, and for every process that a test starts: tests share the cores, and tensors as small as
# theirs do nothing but wait for a second thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# What a shell script starts with `nohup ... &` is born deaf to these, and so would be every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def witness() -> Iterator[object]:
    """The method `witness` is registered, and this is what it sees (`witness.Seen`)."""
    from witness import Seen, Witness

    from staleharness.algorithm import ALGORITHMS

    Witness.seen = Seen()
    ALGORITHMS.register("witness")(Witness)
    yield Witness.seen
    del ALGORITHMS._classes["witness"]
