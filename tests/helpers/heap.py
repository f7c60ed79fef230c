"""The heap of the tests' process, where millions of objects stay for as long as it lives."""

from __future__ import annotations

import gc


def freeze_heap() -> None:
    """Leave what is alive out of every later search for garbage: each takes a second where results of all published
    runs are held, and a report searches once per figure."""
    gc.collect()
    gc.freeze()
