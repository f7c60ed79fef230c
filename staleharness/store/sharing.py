"""Which published studies hold the same runs: figures of theirs are not independent evidence."""

from __future__ import annotations

import functools
from pathlib import Path

from .bundle import Bundle
from .store import MARKER, Store
from .stored_run import StoredRun


@functools.cache
def _ids(folder: Path) -> dict[str, frozenset[str]]:
    """{study: ids of its runs} of all bundles in a folder."""
    return {
        marker.parent.name: frozenset(run.id for run in Store(marker.parent).read_all())
        for marker in sorted(folder.glob(f"*/{MARKER}"))
    }


def shared_with(bundle: Bundle) -> tuple[list[StoredRun], list[str]]:
    """The runs of a bundle that other studies beside it hold, too, and these studies."""
    held = {run.id: run for run in bundle.runs}
    ids = {name: i & set(held) for name, i in _ids(bundle.path.parent).items() if name != bundle.path.name}
    shared = {run_id for both in ids.values() for run_id in both}
    return [held[run_id] for run_id in sorted(shared)], sorted(name for name, both in ids.items() if both)
