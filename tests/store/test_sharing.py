"""Runs that several published studies hold."""

from __future__ import annotations

from staleharness.store.bundle import bundle_path, read_bundle, reference
from staleharness.store.sharing import shared_with
from staleharness.store.study import read_study


def test_four_studies_hold_the_same_five_runs_of_vaco() -> None:
    bundle = read_bundle(
        bundle_path(reference(), "vaco_delta", "small"),
        read_study(reference() / "vaco_delta" / "study.toml"),
        "small",
    )
    assert bundle is not None
    runs, studies = shared_with(bundle)
    assert {"vaco_control", "vaco_rho_bar", "vaco_switches", "vaco_tuned_kl"} <= set(studies)
    assert {(run.label, run.seed) for run in runs} == {("vaco", seed) for seed in range(5)}


def test_a_study_of_its_own_shares_nothing() -> None:
    path = reference() / "ppo_hopper_cleanrl"
    bundle = read_bundle(path, read_study(path / "study.toml"), "small")
    assert bundle is not None and shared_with(bundle) == ([], [])
