"""Which published studies hold the same runs: figures of theirs are not independent evidence."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from .bundle import Bundle
from .store import MARKER, Store
from .stored_run import StoredRun


class Shared(NamedTuple):
    """The runs of a bundle that studies beside it have, too, and which studies these are.

    same: to the bit. again: only made again there, on another kind of processor or by other code, so that seed and
    settings are the same and the numbers are not.
    """

    same: list[StoredRun]
    same_in: list[str]
    again: list[StoredRun]
    again_in: list[str]


@functools.cache
def _sums(folder: Path) -> dict[str, dict[str, str]]:
    """{study: {id of a run: checksum of its metrics}} of all bundles in a folder."""
    return {
        marker.parent.name: {run.id: run.record["metrics_sha256"] for run in Store(marker.parent).read_all()}
        for marker in sorted(folder.glob(f"*/{MARKER}"))
    }


def shared_with(bundle: Bundle) -> Shared:
    """What a bundle shares with those beside it."""
    mine = {run.id: run for run in sorted(bundle.runs, key=lambda run: run.id)}
    same: dict[str, set[str]] = {}  # run: studies
    again: dict[str, set[str]] = {}
    for study, sums in _sums(bundle.path.parent).items():
        if study != bundle.path.name:
            for run_id in mine.keys() & sums.keys():
                held = same if sums[run_id] == mine[run_id].record["metrics_sha256"] else again
                held.setdefault(run_id, set()).add(study)
    again = {run_id: studies for run_id, studies in again.items() if run_id not in same}
    return Shared(
        [run for run_id, run in mine.items() if run_id in same],
        sorted(set().union(*same.values())),
        [run for run_id, run in mine.items() if run_id in again],
        sorted(set().union(*again.values())),
    )
