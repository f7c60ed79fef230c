"""Published bundles are found from anywhere, as `results/reference/...`."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import pytest

import staleharness as sh
from staleharness.base.reference_results import reference_folder, results_path
from staleharness.store.bundle_reader import read_runs
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


# Runs in several bundles whose numbers differ: bundles of the canonical copies -> number of runs, as
# docs/reproducibility.md lists them.
CANONICAL = {
    ("lr_lag",): 6,
    ("lr_lag_no_clip",): 4,
    ("vaco_delta", "vaco_rho_bar", "vaco_switches", "vaco_tuned_kl"): 2,
    ("vaco_delta", "vaco_switches", "vaco_tuned_kl"): 2,
    ("vaco_rho_bar",): 2,
    ("vaco_tuned_kl",): 4,
    ("vcpo_rates",): 5,
    ("vcpo_whole",): 9,
}


def test_the_newest_copy_of_a_run_in_several_bundles_is_canonical() -> None:
    copies: dict[str, dict[str, tuple[str, str]]] = {}
    for bundle in published_bundles():
        for run_id, record, _, _ in read_runs(bundle):
            scores = {name: [score["mean"], score["returns"]] for name, score in record["scores"].items()}
            numbers = json.dumps([record["metrics_sha256"], scores], sort_keys=True)
            copies.setdefault(run_id, {})[bundle.name] = (record["date"], numbers)
    several = {run_id: places for run_id, places in copies.items() if len(places) > 1}
    canonical = collections.Counter()
    for places in several.values():
        if len({numbers for _, numbers in places.values()}) > 1:
            newest = max(date for date, _ in places.values())
            names = sorted(name for name, (date, _) in places.items() if date == newest)
            assert len({places[name][1] for name in names}) == 1, "copies of one day have the same numbers"
            canonical[tuple(names)] += 1
    assert len(several) == 425 and canonical == CANONICAL
    page = (Path(__file__).parents[1] / "docs" / "reproducibility.md").read_text()
    for names, count in CANONICAL.items():
        assert f"| {', '.join(f'`{name}`' for name in names)} | {count} |" in page
