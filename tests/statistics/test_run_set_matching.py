"""A setting that runs are older than is no difference where newer ones do what those did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from results_helper import write_run

from staleharness.statistics.run_set_matching import match
from staleharness.statistics.table_notes import on_mixtures
from staleharness.store.stored_run import StoredRun, with_newer_settings


def with_setting(run: StoredRun, **more: Any) -> StoredRun:
    return replace(run, record={**run.record, "spec": {**run.record["spec"], **more}})


def test_added_setting_differs_only_where_it_varies(tmp_path: Path) -> None:
    older = [write_run(tmp_path, "spo", seed, sampled=1.0, phases=2) for seed in (0, 1)]
    newer = [with_setting(run, warmth=0) for run in older]
    mixed = [newer[0], older[1]]
    for a, b in ((older, newer), (mixed, newer), (older, mixed)):
        found = match(a, b)
        assert [len(side) for pair in found.cells.values() for side in pair] == [2, 2]
        assert not any("warmth" in note for note in found.notes)
    varied = [with_setting(run, warmth=run.seed) for run in older]
    assert any("warmth" in note for note in match(older, varied).notes)


def saying_before(run: StoredRun, **before: Any) -> StoredRun:
    return replace(run, record={**run.record, "before": before})


def test_recorded_earlier_behaviour_fills_a_missing_setting(tmp_path: Path) -> None:
    older = [write_run(tmp_path, "spo", seed, sampled=1.0, phases=2) for seed in (0, 1)]
    same, other = ([saying_before(with_setting(run, warmth=w), warmth=0) for run in older] for w in (0, 5))
    assert not match(older, same).notes and not on_mixtures(with_newer_settings([older[0], same[1]]))
    assert match(older, other).notes == ["set differently: warmth = 0 in A, 5 in B"]
    assert on_mixtures(with_newer_settings([older[0], other[1]])) == [
        "runs are set to different warmth: 0 (1 run), 5 (1 run)"
    ]


def test_earlier_behaviour_is_of_one_kind_only(tmp_path: Path) -> None:
    control = write_run(tmp_path, "spo", 0, phases=2)
    language = write_run(tmp_path, "tis", 0, kind="language", env="word-problems", phases=2)
    said = on_mixtures(with_newer_settings([control, saying_before(with_setting(language, warmth=5), warmth=5)]))
    assert "runs are set to different warmth: 5 (1 run), None (1 run)" in said
