"""Panels of runs: what stands behind a row, with settings, curves and files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from browser import CHROMIUM, Page
from pressing import press
from quick_figures import draw_quickly
from results_helper import write_grid, write_run

from staleharness.figures.palette import styles
from staleharness.pages import report
from staleharness.pages.report_panels import POINTS, anchors, curve, run_groups
from staleharness.statistics import aggregate as stats
from staleharness.statistics.results import Results
from staleharness.store.run_grid import cell_of


def test_every_row_has_its_runs_with_settings_that_differ(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("ppo_clip", "vaco"), capacities=(1, 4), phases=6, seeds=2)
    runs.append(write_run(tmp_path, "spo", 0, capacity=4, phases=6, settings={"epochs": 3}))
    runs.append(write_run(tmp_path / "elsewhere", "spo", 1, capacity=4, phases=6, settings={"epochs": 5}))
    runs.sort(key=lambda run: (cell_of(run), run.seed))
    table = stats.table(runs, reps=50)
    folder = tmp_path / "reports" / "x"
    groups = list(run_groups(runs, table, styles(r["algorithm"] for r in table.rows), folder))
    assert [g["title"] for g in groups] == [
        f"{m}, K = {k}" for m, k in [("PPO-clip", 1), ("PPO-clip", 4), ("SPO", 4), ("VACO", 1), ("VACO", 4)]
    ]
    assert [g["anchor"] for g in groups] == list(anchors(runs).values()) == [f"row-{i}" for i in range(5)]
    assert [r["id"] for g in groups for r in g["runs"]] == [run.id for run in runs]
    spo = groups[2]["runs"]
    assert [r["settings"] for r in spo] == [[("epochs", "3")], [("epochs", "5")]]
    assert [r["settings"] for r in groups[0]["runs"]] == [[], []]
    assert (folder / spo[0]["files"] / "run.json").resolve().is_file() and spo[1]["files"] == ""


def test_returns_that_are_not_normalised_are_no_accuracy(tmp_path: Path) -> None:
    """Tasks without a reference score have them; a language task has an accuracy."""
    runs = [write_run(tmp_path, "spo", seed, env="Pendulum-v1", sampled=-900.0) for seed in range(2)]
    answers = write_run(tmp_path / "b", "tis", 0, env="word-problems", kind="language", sampled=0.5, deterministic=0.5)
    for members, label, score in ((runs, "return", "-900.0"), ([answers], "accuracy", "0.500")):
        table = stats.table(members, reps=50, engine="quick", normalise="raw")
        (group,) = run_groups(members, table, {}, tmp_path / "reports" / "x")
        assert {c["label"] for r in group["runs"] for c in r["curves"]} <= {label, "TV of the data"}
        assert [r["score"] for r in group["runs"]] == [score] * len(members)


def test_a_curve_passes_through_its_values() -> None:
    x, y = np.array([100.0, 200.0, 400.0, 500.0]), np.array([-3.0, np.nan, 7.0, 2.0])
    drawn = curve(x, y, "return", "steps")
    assert drawn is not None and drawn["text"] == "-3 → 2, -3 to 7"
    axes = json.loads(drawn["axes"])
    (left, top, right, bottom), (x0, x1), (y0, y1) = axes["box"], axes["x"]["ends"], axes["y"]["ends"]
    places = [tuple(map(float, point.split())) for point in drawn["path"].removeprefix("M").split("L")]
    for (a, b), wanted in zip(places, ((100, -3), (400, 7), (500, 2)), strict=True):
        found = x0 + (a - left) / (right - left) * (x1 - x0), y0 + (bottom - b) / (bottom - top) * (y1 - y0)
        assert found == pytest.approx(wanted, abs=0.2)
    assert curve(x, np.zeros(4), "TV", "steps") is None and curve(x[:1], y[:1], "return", "steps") is None
    long = curve(np.arange(1, 1001.0), np.arange(1000.0), "return", "steps")
    assert long is not None and long["path"].count("L") == POINTS - 1 and long["text"] == "0 → 999, 0 to 999"


@pytest.fixture(scope="module")
def report_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    runs = write_grid(root, ("ppo_clip", "vaco"), capacities=(1, 4), phases=6, seeds=2)
    with pytest.MonkeyPatch.context() as patch:
        draw_quickly(patch)
        return report.write(root / "reports" / "x", Results.of(runs), stats.table(runs, reps=50), [], "", "T")


@pytest.mark.long
def test_numbers_lead_to_their_runs(report_path: Path) -> None:
    page = Page(report_path.read_text(encoding="utf-8"))
    ids = {a["id"] for _, a in page.elements if "id" in a}
    links = [a["href"] or "" for t, a in page.elements if t == "a"]
    inside = [link[1:] for link in links if link.startswith("#")]
    assert set(inside) <= ids
    columns = len([1 for t, a in page.elements if t == "button" and "title" in a])
    assert inside.count("row-0") >= columns  # each number of the first row
    assert sum(link.startswith("run-") for link in inside) == 8
    files = [link.partition("#")[0] for link in links if not link.startswith("#")]
    assert all((report_path.parent / file).is_file() for file in files)


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: links into closed panels")
def test_a_link_opens_the_panel_and_its_curve_shows_values(report_path: Path, tmp_path: Path) -> None:
    script = """
    const run = document.querySelector('.run > div'), out = [];
    location.hash = run.id;
    dispatchEvent(new HashChangeEvent('hashchange'));
    out.push([...document.querySelectorAll('#run-panels details[open]')].length, run.checkVisibility());
    const svg = run.querySelector('svg');
    svg.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
    out.push([...document.querySelectorAll('.tip > *')].map((e) => e.textContent));
    return out;"""
    opened, seen, tip = press(report_path.read_text(encoding="utf-8"), tmp_path, script)
    assert (opened, seen) == (2, True)
    assert tip[0] == "PPO-clip" and tip[1].startswith("return: ") and tip[2] == "environment steps: 2,050"
