"""Published bundles are found from anywhere, as `results/reference/...`."""

from __future__ import annotations

from pathlib import Path

import pytest

import staleharness as sh
from staleharness.base.reference_results import reference_folder, results_path
from staleharness.store.study_runs import published_bundles


def test_a_published_bundle_is_found_far_from_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert results_path("results/reference/vaco_delta") == reference_folder() / "vaco_delta"
    assert len(sh.load("results/reference/vaco_delta")) == 50
    assert {"vaco_delta", "quick_hopper"} <= {path.name for path in published_bundles()}


def test_what_lies_here_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results" / "reference" / "vaco_delta").mkdir(parents=True)
    assert results_path("results/reference/vaco_delta") == Path("results/reference/vaco_delta")
    assert results_path("elsewhere/vaco_delta") == Path("elsewhere/vaco_delta")
    assert results_path("") == Path()
