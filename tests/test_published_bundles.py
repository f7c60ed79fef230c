"""Published bundles are found from anywhere, as `results/reference/...`."""

from __future__ import annotations

import collections
import json
import shutil
from pathlib import Path

import pytest

import staleharness as sh
from staleharness.base import reference_results
from staleharness.base.reference_results import reference_folder, results_path
from staleharness.pages.paper_figure_data import load_figures
from staleharness.pages.paper_figure_specs import read_paper
from staleharness.running import forecast
from staleharness.store.bundle_reader import read_runs
from staleharness.store.store import Store
from staleharness.store.study_runs import find_bundle, published_bundles

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a bundle that was copied to it, where the program came as a wheel with two others."""
    inside, copied = tmp_path / "_builtin" / "reference", tmp_path / "cwd" / "results" / "reference"
    for folder, name in ((inside, "quick_hopper"), (inside, "vaco_control"), (copied, "lesson_lag")):
        shutil.copytree(ROOT / "results" / "reference" / name, folder / name)
    monkeypatch.setattr(reference_results, "builtin_folder", lambda kind: tmp_path / "_builtin" / kind)
    monkeypatch.chdir(tmp_path / "cwd")
    return copied


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


def test_a_copied_bundle_hides_none_of_the_wheel(wheel: Path) -> None:
    assert {path.name for path in published_bundles()} == {"lesson_lag", "quick_hopper", "vaco_control"}
    figures = load_figures(read_paper("lesson")[1], results_path("results/reference"))
    states = {f.figure.entry.study: f.state for f in figures}
    assert states.pop("lesson_lag") == states.pop("vaco_control") == "drawn"
    assert set(states.values()) == {"no bundle"}
    with pytest.raises(sh.UserError, match=r"these folders in it do: lesson_lag, quick_hopper, vaco_control$"):
        Store("results/reference").check_readable("OUT=results/reference")


def test_a_bundle_of_the_wheel_finds_a_copied_one_beside_it(wheel: Path) -> None:
    inside = reference_folder()
    assert find_bundle(inside, "lesson_lag").resolve() == wheel / "lesson_lag"
    assert find_bundle(inside, "quick_hopper") == inside / "quick_hopper"
    (wheel / "quick_hopper").mkdir()  # half a copy
    assert find_bundle(inside, "quick_hopper") == inside / "quick_hopper"
    assert find_bundle(wheel.parent, "quick_hopper") == wheel.parent / "quick_hopper", (
        "another folder has its own alone"
    )


def test_a_copy_of_a_wheel_s_bundle_counts_once(wheel: Path) -> None:
    before = collections.Counter(run.id for run in forecast._published_runs())
    shutil.copytree(reference_folder() / "quick_hopper", wheel / "quick_hopper")
    assert wheel / "quick_hopper" in published_bundles()
    assert collections.Counter(run.id for run in forecast._published_runs()) == before


def test_a_checkout_lists_its_bundles_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    here = published_bundles()
    assert len({path.resolve() for path in here}) == len(here) > 3
    monkeypatch.chdir("/")
    assert [path.resolve() for path in published_bundles()] == [path.resolve() for path in here]


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
