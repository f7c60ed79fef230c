"""Overlap of published studies: the runs that several of them hold."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import NamedTuple

from .folder_access import folders_of_results
from .store import Store
from .stored_run import StoredRun
from .study_runs import StudyRuns


class Overlap(NamedTuple):
    """Runs that a study shares with other published ones: their figures are not independent evidence."""

    identical: list[StoredRun]
    """Runs that another study holds with identical metrics."""

    identical_in: list[str]
    """Studies that hold them."""

    rerun: list[StoredRun]
    """Runs that other studies hold with other numbers: executed again on other hardware or with other code."""

    rerun_in: list[str]
    """Studies that hold those."""


@functools.cache
def _checksums(folder: Path) -> dict[str, dict[str, str]]:
    """Map each study in a folder of bundles to {run id: checksum of its metrics}."""
    return {
        path.name: {run.id: run.record["metrics_sha256"] for run in Store(path).read_all()}
        for path in folders_of_results(folder)
    }


def overlap_with(bundle: StudyRuns) -> Overlap:
    """Find the runs that other bundles in the same folder hold too."""
    runs = {run.id: run for run in sorted(bundle.runs, key=lambda run: run.id)}
    identical: dict[str, set[str]] = {}  # run -> studies
    rerun: dict[str, set[str]] = {}
    for study, checksums in _checksums(bundle.path.parent).items():
        if study != bundle.path.name:
            for run_id in runs.keys() & checksums.keys():
                group = identical if checksums[run_id] == runs[run_id].record["metrics_sha256"] else rerun
                group.setdefault(run_id, set()).add(study)
    rerun = {run_id: studies for run_id, studies in rerun.items() if run_id not in identical}
    return Overlap(
        [run for run_id, run in runs.items() if run_id in identical],
        sorted(set().union(*identical.values())),
        [run for run_id, run in runs.items() if run_id in rerun],
        sorted(set().union(*rerun.values())),
    )
