"""The table of results: rows, notes, cache, text, CSV."""

from __future__ import annotations

import csv
import io
import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from results_helper import ALGORITHMS, write_grid, write_run

from staleharness.base.text_formatting import duration
from staleharness.errors import UserError
from staleharness.statistics import aggregate as stats
from staleharness.statistics import scores
from staleharness.statistics import table as tables
from staleharness.store import run_grid


def expected_run(label: str, seed: int, problem: str | None = None) -> dict:
    return {"label": label, "seed": seed, "problem": problem, "capacity": 8, "env": "Hopper-v5"}


def test_columns_are_environments_with_seeds_in_order(tmp_path: Path):
    made = [
        write_run(tmp_path, "spo", seed, env=env, sampled=value)
        for env, seed, value in [
            ("Walker2d-v5", 1, 4.0),
            ("Hopper-v5", 2, 3.0),
            ("Hopper-v5", 0, 1.0),
            ("Walker2d-v5", 0, 5.0),
            ("Hopper-v5", 1, 2.0),
            ("Walker2d-v5", 2, 6.0),
        ]
    ]
    grid = run_grid.grid(made)
    assert [c.env for c in grid.cells] == ["Hopper-v5", "Walker2d-v5"]
    assert [[scores.final_score(r, "sampled") for r in rs] for rs in grid.cells.values()] == [[1, 2, 3], [5, 4, 6]]


def test_runs_and_tasks_are_not_swapped_in_the_interval(tmp_path: Path):
    # One level per algorithm, five tasks, two runs each.
    made = [
        write_run(tmp_path, label, seed, env=f"E{e}", sampled=100.0 * (label == "vaco"), curve=[0.0, 0.0])
        for label, seed, e in itertools.product(("spo", "vaco"), (0, 1), range(5))
    ]
    row = stats.table(made, reps=100).rows[1]
    assert (row["n_runs"], row["n_tasks"], row["env"]) == (2, 5, "5 envs")
    assert row["iqm_low"] == row["iqm_high"] == row["iqm"] == 1.0


def test_unknown_options_name_the_nearest_known_one(tmp_path: Path):
    runs = [write_run(tmp_path)]
    with pytest.raises(UserError, match="did you mean 'minmax'"):
        stats.table(runs, normalise="minmx")
    with pytest.raises(UserError, match="did you mean 'rliable'"):
        stats.table(runs, engine="reliable")
    with pytest.raises(UserError, match="at least 10 resamples"):
        stats.table(runs, reps=0)
    with pytest.raises(UserError, match="did you mean 'deterministic'"):
        stats.table(runs, score="determinstic")


def test_auc_is_the_trapezoid_mean_of_normalised_returns(tmp_path: Path):
    made = [
        write_run(tmp_path, "spo", 0, sampled=100.0, curve=[0.0, 40.0, 100.0], phases=5),
        write_run(tmp_path, "vaco", 0, sampled=0.0, curve=[0.0, 0.0], phases=5),
    ]
    spo, vaco = stats.table(made).rows
    assert spo["auc"] == pytest.approx((0.2 + 0.7) / 2)
    assert vaco["auc"] == 0.0 and vaco["auc_low"] is None


def test_one_evaluation_gives_no_area(tmp_path: Path):
    row = stats.table([write_run(tmp_path, "spo", 0, curve=[50.0])]).rows[0]
    assert row["auc"] is None


def test_a_run_without_a_curve_leaves_the_row_without_an_area(tmp_path: Path):
    curves = [0.0, 40.0, 100.0], [50.0]
    made = [write_run(tmp_path, "spo", s, sampled=float(s), curve=c, phases=5) for s, c in enumerate(curves)]
    (row,) = stats.table(made, reps=50).rows
    assert row["auc"] is None and row["auc_low"] is None


def test_missing_runs_are_named_with_their_reason(tmp_path: Path):
    made = [write_run(tmp_path, "spo", 0, sampled=1.0), write_run(tmp_path, "vaco", 0, sampled=2.0)]
    wanted = [
        expected_run("spo", 0),
        expected_run("spo", 1, "Diverged"),
        expected_run("vaco", 0),
        expected_run("vaco", 1),
    ]
    table = stats.table(made, wanted)
    assert "2 of 4 runs missing: spo seed 1 (Diverged), vaco seed 1 (not run)" in table.notes
    assert "note: 2 of 4 runs missing" in tables.plain(table)
    assert [r["missing"] for r in table.rows] == [1, 1]


def test_algorithm_without_runs_has_a_row_without_numbers(tmp_path: Path):
    made = [write_run(tmp_path, "vaco", s, sampled=float(s)) for s in range(2)]
    table = stats.table(made, [expected_run("spo", 0, "Diverged"), expected_run("spo", 1, "Diverged")], reps=50)
    row = table.rows[0]
    assert (row["algorithm"], row["n_runs"], row["missing"], row["iqm"], row["seconds"]) == ("spo", 0, 2, None, None)
    assert "spo" in tables.plain(table)


def test_one_run_has_a_score_but_no_interval(tmp_path: Path):
    made = [write_run(tmp_path, "vaco", 0, sampled=1.0), write_run(tmp_path, "spo", 0, sampled=2.0)]
    table = stats.table(made)
    assert table.rows[0]["iqm"] == 1.0
    assert table.rows[0]["iqm_low"] is None and table.rows[0]["mean_high"] is None
    assert any("one run only" in note for note in table.notes)
    assert "1.00 [–]" in tables.plain(table)


def test_unequal_seeds_are_all_used_with_a_note(tmp_path: Path):
    made = [write_run(tmp_path, "vaco", s, env="A-v1", sampled=float(s)) for s in range(4)]
    made += [write_run(tmp_path, "vaco", s, env="B-v1", sampled=float(s)) for s in range(2)]
    table = stats.table(made, reps=50)
    row = table.rows[0]
    assert (row["n_runs"], row["n_tasks"]) == (2, 2)
    assert row["mean"] == pytest.approx(0.5)  # A: 0, 1/3, 2/3, 1; B: 0, 1
    assert row["iqm"] == pytest.approx(np.mean([0.0, 0.0, 1 / 3, 2 / 3, 1.0, 1.0][1:-1]))
    assert row["iqm_low"] is not None
    assert any("unequal numbers of runs (A-v1 4, B-v1 2)" in note for note in table.notes)


def test_missing_environment_has_a_note(tmp_path: Path):
    made = [write_run(tmp_path, "vaco", s, env=e, sampled=float(s)) for s in range(2) for e in ("A-v1", "B-v1")]
    made += [write_run(tmp_path, "spo", s, env="A-v1", sampled=float(s)) for s in range(2)]
    assert any("spo K=8 has no run on B-v1" in note for note in stats.table(made, reps=50).notes)


def test_mixed_versions_and_settings_have_notes(tmp_path: Path):
    made = [
        write_run(tmp_path, "vaco", 0, sampled=1.0),
        write_run(
            tmp_path,
            "vaco",
            1,
            sampled=2.0,
            fingerprint={"mujoco": "4.0.0", "staleharness": "9"},
            settings={"num_envs": 8},
        ),
    ]
    notes = stats.table(made, reps=50).notes
    assert "runs are made with different mujoco: 3.17.0 (1 run), 4.0.0 (1 run)" in notes
    assert any(note.startswith("runs are set to different num_envs") for note in notes)
    assert not any("staleharness" in note for note in notes)


def test_two_runs_of_a_seed_are_refused_with_their_difference(tmp_path: Path):
    made = [write_run(tmp_path, phases=12), write_run(tmp_path, phases=6)]
    with pytest.raises(UserError, match=r"vaco on Hopper-v5 at K=8, seed 0 .*steps=\d+ or \d+"):
        stats.table(made)


def test_the_table_does_not_depend_on_the_order_of_the_runs(tmp_path: Path):
    made = write_grid(tmp_path, ("spo", "vaco"), seeds=4, phases=3)
    assert stats.table(made, reps=100) == stats.table(made[::-1], reps=100)


def test_row_does_not_depend_on_the_other_algorithms(tmp_path: Path):
    made = write_grid(tmp_path, ("ppo_clip", "spo", "vaco"), seeds=3, phases=3, capacities=(1,))
    all_rows = stats.table(made, normalise="ppo", reps=100).rows
    fewer = [r for r in made if r.record["label"] != "spo"]
    assert stats.table(fewer, normalise="ppo", reps=100).rows == [all_rows[0], all_rows[2]]


def test_deterministic_scores_give_their_own_table(tmp_path: Path):
    made = [write_run(tmp_path, a, 0, sampled=s, deterministic=d) for a, s, d in (("spo", 1, 9), ("vaco", 2, 3))]
    table = stats.table(made, score="deterministic")
    assert [r["raw_mean"] for r in table.rows] == [9.0, 3.0]
    assert "deterministic returns" in table.headline


def test_preview_has_the_same_points_and_needs_no_rliable(tmp_path: Path):
    made = write_grid(tmp_path, ("spo", "vaco"), seeds=8, phases=4)
    full, quick = (stats.table(made, engine=e, reps=2000) for e in ("rliable", "quick"))
    for a, b in zip(full.rows, quick.rows, strict=True):
        assert a["iqm"] == pytest.approx(b["iqm"], abs=1e-12)
        for end in ("iqm_low", "iqm_high", "auc_low", "auc_high"):
            assert a[end] == pytest.approx(b[end], abs=0.03)
    assert "rliable" in full.headline and "quick" in quick.headline
    program = """
import sys
from staleharness.statistics import aggregate as stats
from staleharness.store.store import Store
stats.table(Store(sys.argv[1]).read_all(), engine="quick")
print("rliable" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_row_has_every_column_and_survives_json(tmp_path: Path):
    table = stats.table(write_grid(tmp_path, ("spo", "vaco"), phases=4), reps=100)
    assert all(tuple(row) == tables.COLUMNS for row in table.rows)
    assert tables.Table(**json.loads(json.dumps(table.to_json(), allow_nan=False))) == table


def test_cached_table_imports_no_heavy_library(tmp_path: Path):
    made = write_grid(tmp_path, ("spo", "vaco"), phases=3)
    expected = [expected_run("spo", 3, "Diverged")]
    first = stats.cached_table(tmp_path / "reports" / "x", made, expected, reps=100)
    program = """
import json, sys
from pathlib import Path
from staleharness.statistics import aggregate as stats
from staleharness.store.store import Store
root, expected = Path(sys.argv[1]), json.loads(sys.argv[2])
table = stats.cached_table(root / "reports" / "x", Store(root).read_all(), expected, reps=100)
heavy = {"rliable", "pandas", "torch", "scipy", "matplotlib", "gymnasium", "mujoco"} & set(sys.modules)
print(json.dumps([table.to_json(), sorted(heavy)]))
"""
    command = [sys.executable, "-c", program, str(tmp_path), json.dumps(expected)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    again, heavy = json.loads(done.stdout)
    assert (again, heavy) == (first.to_json(), [])


def test_cache_is_invalid_for_other_runs_or_options(tmp_path: Path):
    made = write_grid(tmp_path, ("spo", "vaco"), seeds=2, phases=3)
    folder = tmp_path / "reports" / "x"
    three = stats.cached_table(folder, made[:3], reps=50)
    four = stats.cached_table(folder, made, reps=50)
    assert (three.rows[1]["n_runs"], four.rows[1]["n_runs"]) == (1, 2)
    assert stats.cached_table(folder, made, reps=60).settings["reps"] == 60
    assert stats.cached_table(folder, made, [expected_run("spo", 7)], reps=60).notes != four.notes
    (folder / "table.json").write_text("{ torn")
    assert stats.cached_table(folder, made, reps=50) == four
    other_labels = [replace(run, record={**run.record, "label": f"my_{run.label}"}) for run in made]
    assert {row["algorithm"] for row in stats.cached_table(folder, other_labels, reps=50).rows} == {"my_spo", "my_vaco"}


def test_plain_table_fits_the_width(tmp_path: Path):
    made = write_grid(tmp_path, (*ALGORITHMS[:2], "mine[delta=0.1,realign_every=step,rho_bar=2.0]"), phases=3)
    table = stats.table(made, reps=50)
    for width in (80, 100, 120):
        lines = tables.plain(table, width).splitlines()
        assert max(map(len, lines)) <= width
        body = next(i for i, line in enumerate(lines) if line.startswith("---"))
        assert lines[body - 1].startswith("algorithm") and len(lines[body + 1 : body + 4]) == 3
    assert " ESS  " in tables.plain(table, 120) and "no room for gap, clip%" in tables.plain(table, 80)


def test_names_are_text_and_not_terminal_markup(tmp_path: Path):
    made = [write_run(tmp_path, "[red]x[/red]", 0), write_run(tmp_path, "a", 0, sampled=5.0)]
    made[1] = replace(made[1], record=made[1].record | {"label": "a\x1b[31mb"})  # the store lets none of these through
    text = tables.plain(stats.table(made))
    assert "[red]x[/red]" in text
    assert "\x1b" not in text and "a?[31mb" in text


def test_csv_holds_every_column_and_defuses_formulas(tmp_path: Path):
    made = [write_run(tmp_path, "=cmd()", 0), write_run(tmp_path, "spo", 0, sampled=-5.0)]
    rows = list(csv.DictReader(io.StringIO(tables.to_csv(stats.table(made)))))
    assert tuple(rows[0]) == tables.COLUMNS
    assert rows[0]["algorithm"] == "'=cmd()"
    assert rows[1]["raw_mean"] == "-5.0" and rows[1]["iqm_low"] == ""


@pytest.mark.parametrize("seconds, text", [(None, "–"), (0.4, "0s"), (59.6, "1m00s"), (200, "3m20s"), (7500, "2h05m")])
def test_duration_text(seconds: float | None, text: str):
    assert duration(seconds) == text
