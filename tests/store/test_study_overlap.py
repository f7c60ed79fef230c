"""Runs that several published studies hold."""

from __future__ import annotations

from pathlib import Path

from results_helper import write_run

from staleharness.base.reference_results import reference_folder
from staleharness.store.store import Store
from staleharness.store.study_runs import StudyRuns, bundle_path, overlap_with, read_study_runs
from staleharness.study import read_study


def test_four_studies_hold_the_same_five_runs_of_vaco() -> None:
    bundle = read_study_runs(
        bundle_path(reference_folder(), "vaco_delta", "small"),
        read_study(reference_folder() / "vaco_delta" / "study.toml"),
        "small",
    )
    assert bundle is not None
    shared = overlap_with(bundle)
    assert {"vaco_rho_bar", "vaco_switches", "vaco_tuned_kl"} <= set(shared.identical_in)
    assert {(run.label, run.seed) for run in shared.identical} == {("vaco", seed) for seed in range(5)}
    assert not shared.rerun


def test_a_rerun_elsewhere_differs_from_a_shared_run(tmp_path: Path) -> None:
    """`mine` has three runs; `theirs` has the first of them, the second with other numbers, and one of its own."""
    for study, seeds in (("mine", (0, 1, 2)), ("theirs", (0, 1, 3))):
        for seed in seeds:
            other = {"metrics_sha256": "0" * 64} if (study, seed) == ("theirs", 1) else {}
            write_run(tmp_path / study, "vaco", seed, phases=2, said=other)
    runs = Store(tmp_path / "mine").read_all()
    shared = overlap_with(StudyRuns(tmp_path / "mine", "small", runs, 0, []))
    assert [run.seed for run in shared.identical] == [0] and [run.seed for run in shared.rerun] == [1]
    assert shared.identical_in == shared.rerun_in == ["theirs"]


def test_a_study_of_its_own_shares_nothing() -> None:
    path = reference_folder() / "ppo_hopper_cleanrl"
    bundle = read_study_runs(path, read_study(path / "study.toml"), "small")
    assert bundle is not None and overlap_with(bundle) == ([], [], [], [])
