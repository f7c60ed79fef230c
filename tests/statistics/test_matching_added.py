"""A setting that runs are older than is no difference while all newer ones have one value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from results_helper import write_run

from staleharness.statistics.matching import match
from staleharness.store.stored_run import StoredRun


def with_setting(run: StoredRun, **more: Any) -> StoredRun:
    return replace(run, record={**run.record, "spec": {**run.record["spec"], **more}})


def test_a_setting_that_was_added_is_a_difference_only_where_it_varies(tmp_path: Path) -> None:
    older = [write_run(tmp_path, "spo", seed, sampled=1.0, phases=2) for seed in (0, 1)]
    newer = [with_setting(run, warmth=0) for run in older]
    mixed = [newer[0], older[1]]
    for a, b in ((older, newer), (mixed, newer), (older, mixed)):
        found = match(a, b)
        assert [len(side) for pair in found.shared.values() for side in pair] == [2, 2]
        assert not any("warmth" in note for note in found.notes)
    varied = [with_setting(run, warmth=run.seed) for run in older]
    assert any("warmth" in note for note in match(older, varied).notes)
