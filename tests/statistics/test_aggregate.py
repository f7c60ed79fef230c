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
from places import ROOT
from results_helper import ALGORITHMS, write_grid, write_run
from rliable import library, metrics

from staleharness.errors import UserError
from staleharness.statistics import aggregate as stats
from staleharness.statistics import bootstrap, normalise, scores
from staleharness.statistics import table as tables
from staleharness.store import run_grid


def asked(label: str, seed: int, problem: str | None = None, *, capacity: int = 8, env: str = "Hopper-v5") -> dict:
    return {"label": label, "seed": seed, "problem": problem, "capacity": capacity, "env": env}


# --- the four aggregates


def test_the_iqm_of_eight_scores_is_the_mean_of_the_middle_four():
    assert bootstrap.iqm(np.array([100.0, 1, 2, 3, 4, 5, 6, -50])) == pytest.approx((2 + 3 + 4 + 5) / 4)


def test_the_iqm_of_three_scores_is_their_mean():
    assert bootstrap.iqm(np.array([0.0, 1.0, 5.0])) == pytest.approx(2.0)


def test_aggregates_worked_by_hand_on_two_tasks():
    # Task means 0.5 and 1.25; pooled and sorted: 0, 0.5, 1, 2, so the middle two are 0.5 and 1.
    got = bootstrap.aggregates(np.array([0.0, 1.0]), np.array([0.5, 2.0]))
    assert got == pytest.approx([0.75, 0.875, 0.875, 1 - np.mean([0.0, 1.0, 0.5, 1.0])])


def test_the_median_is_over_task_means_and_not_over_runs():
    columns = [np.array([0.0, 0.0, 9.0]), np.array([1.0, 1.0, 1.0]), np.array([2.0, 2.0, 2.0])]
    assert bootstrap.aggregates(*columns)[1] == pytest.approx(2.0)  # task means 3, 1, 2


def test_scores_above_one_do_not_pay_for_scores_below_in_the_optimality_gap():
    assert bootstrap.aggregates(np.array([5.0, 0.5]))[3] == pytest.approx(0.25)


@pytest.mark.parametrize("runs, tasks", [(2, 1), (3, 1), (3, 5), (10, 2), (7, 3)])
def test_aggregates_are_those_of_rliable(runs: int, tasks: int):
    matrix = np.random.default_rng([runs, tasks]).normal(size=(runs, tasks))
    columns = list(matrix.T)
    theirs = [
        metrics.aggregate_iqm(matrix),
        metrics.aggregate_median(matrix),
        metrics.aggregate_mean(matrix),
        metrics.aggregate_optimality_gap(matrix),
    ]
    np.testing.assert_allclose(bootstrap.aggregates(*columns), theirs, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(bootstrap.rliable_points(*columns), theirs)


def test_probability_of_improvement_is_that_of_rliable_and_counts_ties_half():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, (4, 3)).astype(float), rng.integers(0, 5, (6, 3)).astype(float)
    assert bootstrap.improvement(list(x.T), list(y.T)) == pytest.approx(metrics.probability_of_improvement(x, y))
    assert bootstrap.improvement([np.array([1.0, 2.0])], [np.array([1.0, 3.0])]) == pytest.approx((0.5 + 0 + 1 + 0) / 4)


def test_resampled_improvement_is_that_of_the_resampled_runs_to_the_bit():
    draw = np.random.default_rng(5)
    x, y = ([draw.integers(0, 9, n).astype(float) for n in sizes] for sizes in ((7, 4), (5, 6)))
    rng = np.random.default_rng(1)
    wanted = bootstrap.improvement(bootstrap.resample(x, 300, rng), bootstrap.resample(y, 300, rng))
    found = bootstrap.resampled_improvement(x, y, 300, np.random.default_rng(1))
    assert np.array_equal(found, wanted) and wanted.std() > 0.05


def test_improvement_over_a_baseline_is_counted_at_equal_capacity(tmp_path: Path):
    scored = {("ppo_clip", 1): (1.0, 2.0), ("ppo_clip", 8): (5.0, 6.0), ("vaco", 8): (5.5, 7.0), ("spo", 1): (0.0, 3.0)}
    runs = [write_run(tmp_path, a, s, capacity=k, sampled=v) for (a, k), vs in scored.items() for s, v in enumerate(vs)]
    spo, vaco = stats.improvement(runs, "ppo_clip", reps=200)
    assert (spo["algorithm"], spo["capacity"], spo["probability"]) == ("spo", 1, 0.5)
    assert (vaco["algorithm"], vaco["capacity"], vaco["probability"]) == ("vaco", 8, 0.75)
    assert 0.0 <= vaco["low"] <= 0.75 <= vaco["high"] == 1.0
    with pytest.raises(UserError, match="did you mean 'ppo_clip'"):
        stats.improvement(runs, "ppo_clp")


# --- intervals


def test_the_interval_is_rliables_own_under_the_same_seed():
    matrix = np.random.default_rng(1).normal(size=(5, 3))
    low, high = bootstrap.rliable_interval(bootstrap.aggregates, list(matrix.T), name=("a", 8), reps=300)
    np.random.seed(bootstrap.stable_seed("a", 8))  # noqa: NPY002
    _, theirs = library.get_interval_estimates(
        {"a": matrix}, lambda m: np.array([metrics.aggregate_iqm(m), metrics.aggregate_median(m)]), reps=300
    )
    np.testing.assert_allclose(np.array([low[:2], high[:2]]), theirs["a"], atol=1e-14)


@pytest.mark.parametrize("sizes", [(5,), (3, 3, 3), (20, 20), (4, 10, 7), (1, 6)], ids=str)
def test_resamples_drawn_at_once_are_those_of_rliable_bit_for_bit(sizes: tuple[int, ...]):
    columns = [np.random.default_rng(t).normal(size=n) for t, n in enumerate(sizes)]
    ours = bootstrap.rliable_resamples(columns, 40, seed=17)
    if len(set(sizes)) == 1:
        theirs = library.StratifiedBootstrap(np.stack(columns, axis=1))
    else:
        theirs = library.StratifiedIndependentBootstrap(*[c[:, None] for c in columns])
    np.random.seed(17)  # noqa: NPY002
    for rep, (drawn, _) in enumerate(theirs.bootstrap(40)):
        tasks = list(drawn[0].T) if len(drawn) == 1 else [d[:, 0] for d in drawn]
        for task, wanted in enumerate(tasks):
            np.testing.assert_array_equal(ours[task][rep], wanted)


@pytest.mark.parametrize("sizes", [(10, 10, 10), (4, 10, 7)], ids=["equal", "unequal"])
def test_our_bootstrap_agrees_with_rliable_within_monte_carlo_error(sizes: tuple[int, ...]):
    rng = np.random.default_rng(2)
    columns = [rng.normal(t, 1.0, n) for t, n in enumerate(sizes)]
    reps = 4000
    theirs = bootstrap.rliable_interval(bootstrap.aggregates, columns, name=("x",), reps=reps)
    ours = bootstrap.fast_interval(bootstrap.aggregates, columns, name=("y",), reps=reps)
    # Standard error of a 2.5 % quantile of R normal draws: 2.67 standard deviations / sqrt(R).
    spread = bootstrap.aggregates(*bootstrap.resample(columns, reps, rng)).std(axis=0)
    error = 2.67 * spread / np.sqrt(reps)
    for a, b in zip(theirs, ours, strict=True):
        assert (np.abs(a - b) < 4 * np.sqrt(2) * error).all()


def test_intervals_of_few_seeds_cover_as_rarely_as_the_report_says():
    said = {3: 0.74, 5: 0.83, 10: 0.89, 20: 0.93}  # percent in page.html.j2, under [low, high]
    rng = np.random.default_rng(0)
    for n, share in said.items():
        samples = rng.normal(size=(1000, n))
        weights = rng.multinomial(n, [1 / n] * n, size=600) / n  # of 600 resamples, the same for all experiments
        low, high = bootstrap.percentiles(weights @ samples.T)
        assert ((low <= 0) & (high >= 0)).mean() == pytest.approx(share, abs=0.04)
    page = (ROOT / "staleharness" / "pages" / "templates" / "page.html.j2").read_text()
    assert all(f"{100 * share:.0f} % with {n}" in page for n, share in said.items())


def test_resampling_stays_within_tasks_and_not_across_them():
    columns = [np.zeros(5), np.ones(5)]  # the mean of resamples within tasks can only be one half
    for interval in (bootstrap.rliable_interval, bootstrap.fast_interval):
        low, high = interval(bootstrap.aggregates, columns, name=("z",), reps=200)
        assert low[2] == high[2] == pytest.approx(0.5)


def test_the_global_numpy_generator_is_left_alone():
    np.random.seed(7)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for columns in ([np.arange(4.0)], [np.arange(4.0), np.arange(3.0)]):
        bootstrap.rliable_interval(bootstrap.aggregates, columns, name=("a",), reps=50)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_intervals_do_not_depend_on_the_state_of_the_global_generator():
    columns = [np.random.default_rng(0).normal(size=6)]
    results = []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002
        results.append(bootstrap.rliable_interval(bootstrap.aggregates, columns, name=("a",), reps=100))
    np.testing.assert_array_equal(results[0], results[1])


def test_a_band_around_curves_resamples_whole_runs():
    curves = np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [9.0, 9.0, 9.0]])
    curves = curves * [1.0, 2.0, 4.0]
    middle, low, high = bootstrap.curve_band([curves], name=("c",), reps=500)
    assert middle == pytest.approx([1.5, 3.0, 6.0])
    np.testing.assert_allclose(low, low[0] * np.array([1, 2, 4]))  # the same resamples at every point
    np.testing.assert_allclose(high, high[0] * np.array([1, 2, 4]))
    assert low[0] < 1.5 < high[0]


# --- orientation


def test_columns_are_environments_and_entries_are_seeds_in_order(tmp_path: Path):
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


# --- normalisation


def test_minmax_takes_the_extremes_over_all_algorithms_and_capacities(tmp_path: Path):
    made = [
        write_run(tmp_path, "ppo_clip", 0, capacity=1, sampled=300.0),
        write_run(tmp_path, "ppo_clip", 0, capacity=8, sampled=100.0),
        write_run(tmp_path, "vaco", 0, capacity=8, sampled=200.0),
    ]
    table = stats.table(made)
    assert table.settings["constants"] == {"Hopper-v5": [100.0, 300.0]}
    assert [(r["algorithm"], r["capacity"], r["iqm"]) for r in table.rows] == [
        ("ppo_clip", 1, 1.0),
        ("ppo_clip", 8, 0.0),
        ("vaco", 8, 0.5),
    ]


def test_ppo_normalisation_scales_by_ppo_clip_at_capacity_one_alone(tmp_path: Path):
    made = [
        write_run(tmp_path, "ppo_clip", 0, capacity=1, sampled=100.0),
        write_run(tmp_path, "ppo_clip", 1, capacity=1, sampled=200.0),
        write_run(tmp_path, "ppo_clip", 0, capacity=8, sampled=-500.0),
        write_run(tmp_path, "vaco", 0, capacity=8, sampled=400.0),
    ]
    rows = stats.table(made, normalise="ppo", reps=50).rows
    assert [r["iqm"] for r in rows] == [0.5, -6.0, 3.0]


def test_ppo_normalisation_says_which_runs_it_lacks(tmp_path: Path):
    with pytest.raises(UserError, match=r"needs runs of ppo_clip at K=1 on Hopper-v5"):
        stats.table([write_run(tmp_path, "vaco", 0)], normalise="ppo")
    alone = [write_run(tmp_path, "ppo_clip", 0, capacity=1)]
    with pytest.raises(UserError, match="at least two different"):
        stats.table(alone, normalise="ppo")


def test_frozen_constants_map_the_random_policy_to_zero_and_the_reference_to_one(tmp_path: Path):
    hopper = normalise.constants()["envs"]["Hopper-v5"]
    low, high = hopper["random"]["sampled"]["return"], hopper["reference"]["return"]
    made = [write_run(tmp_path, "vaco", 0, sampled=low), write_run(tmp_path, "spo", 0, sampled=high)]
    assert {r["algorithm"]: r["iqm"] for r in stats.table(made, normalise="frozen").rows} == {"vaco": 0.0, "spo": 1.0}


def test_frozen_constants_refuse_an_environment_they_do_not_hold(tmp_path: Path):
    with pytest.raises(UserError, match=r"no constants for Nowhere-v0 .* Hopper-v5"):
        stats.table([write_run(tmp_path, env="Nowhere-v0")], normalise="frozen")


def test_every_frozen_constant_names_its_source():
    held = normalise.constants()
    assert held["version"] >= 1
    for entry in held["envs"].values():
        assert set(entry["random"]) == {"sampled", "deterministic"}
        assert entry["reference"] is None or entry["reference"]["source"]


def test_equal_scores_everywhere_are_put_in_the_middle_and_said(tmp_path: Path):
    table = stats.table([write_run(tmp_path, "vaco", s, sampled=5.0) for s in (0, 1)], reps=50)
    assert table.rows[0]["iqm"] == 0.5
    assert any("same score" in note for note in table.notes)


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


# --- the area under the curve


def test_the_area_under_a_curve_is_the_trapezoid_mean_of_the_normalised_returns(tmp_path: Path):
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


# --- what is missing


def test_missing_runs_are_named_with_their_reason(tmp_path: Path):
    made = [write_run(tmp_path, "spo", 0, sampled=1.0), write_run(tmp_path, "vaco", 0, sampled=2.0)]
    wanted = [asked("spo", 0), asked("spo", 1, "Diverged"), asked("vaco", 0), asked("vaco", 1)]
    table = stats.table(made, wanted)
    assert "2 of 4 runs missing: spo seed 1 (Diverged), vaco seed 1 (not run)" in table.notes
    assert "note: 2 of 4 runs missing" in tables.plain(table)
    assert [r["missing"] for r in table.rows] == [1, 1]


def test_an_algorithm_without_any_run_keeps_its_row_without_numbers(tmp_path: Path):
    made = [write_run(tmp_path, "vaco", s, sampled=float(s)) for s in range(2)]
    table = stats.table(made, [asked("spo", 0, "Diverged"), asked("spo", 1, "Diverged")], reps=50)
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


def test_unequal_seeds_are_all_used_and_said(tmp_path: Path):
    made = [write_run(tmp_path, "vaco", s, env="A-v1", sampled=float(s)) for s in range(4)]
    made += [write_run(tmp_path, "vaco", s, env="B-v1", sampled=float(s)) for s in range(2)]
    table = stats.table(made, reps=50)
    row = table.rows[0]
    assert (row["n_runs"], row["n_tasks"]) == (2, 2)
    assert row["mean"] == pytest.approx(0.5)  # A: 0, 1/3, 2/3, 1; B: 0, 1
    assert row["iqm"] == pytest.approx(np.mean([0.0, 0.0, 1 / 3, 2 / 3, 1.0, 1.0][1:-1]))
    assert row["iqm_low"] is not None
    assert any("unequal numbers of runs (A-v1 4, B-v1 2)" in note for note in table.notes)


def test_an_algorithm_that_skips_an_environment_is_said(tmp_path: Path):
    made = [write_run(tmp_path, "vaco", s, env=e, sampled=float(s)) for s in range(2) for e in ("A-v1", "B-v1")]
    made += [write_run(tmp_path, "spo", s, env="A-v1", sampled=float(s)) for s in range(2)]
    assert any("spo K=8 has no run on B-v1" in note for note in stats.table(made, reps=50).notes)


def test_mixed_versions_and_settings_are_said(tmp_path: Path):
    made = [
        write_run(tmp_path, "vaco", 0, sampled=1.0),
        write_run(tmp_path, "vaco", 1, sampled=2.0, fingerprint={"mujoco": "4.0.0"}, settings={"num_envs": 8}),
    ]
    notes = stats.table(made, reps=50).notes
    assert "runs are made with different mujoco: 3.17.0 (1 run), 4.0.0 (1 run)" in notes
    assert any(note.startswith("runs are set to different num_envs") for note in notes)


def test_two_runs_of_the_same_seed_are_refused_with_what_differs(tmp_path: Path):
    made = [write_run(tmp_path, phases=12), write_run(tmp_path, phases=6)]
    with pytest.raises(UserError, match=r"vaco on Hopper-v5 at K=8, seed 0 .*steps=\d+ or \d+"):
        stats.table(made)


# --- the table as a whole


def test_the_table_does_not_depend_on_the_order_of_the_runs(tmp_path: Path):
    made = write_grid(tmp_path, ("spo", "vaco"), seeds=4, phases=3)
    assert stats.table(made, reps=100) == stats.table(made[::-1], reps=100)


def test_a_row_does_not_depend_on_which_other_algorithms_are_resampled(tmp_path: Path):
    made = write_grid(tmp_path, ("ppo_clip", "spo", "vaco"), seeds=3, phases=3, capacities=(1,))
    all_rows = stats.table(made, normalise="ppo", reps=100).rows
    fewer = [r for r in made if r.record["label"] != "spo"]
    assert stats.table(fewer, normalise="ppo", reps=100).rows == [all_rows[0], all_rows[2]]


def test_deterministic_scores_give_their_own_table(tmp_path: Path):
    made = [write_run(tmp_path, a, 0, sampled=s, deterministic=d) for a, s, d in (("spo", 1, 9), ("vaco", 2, 3))]
    table = stats.table(made, score="deterministic")
    assert [r["raw_mean"] for r in table.rows] == [9.0, 3.0]
    assert "deterministic returns" in table.headline


def test_a_preview_has_the_same_points_similar_intervals_and_needs_no_rliable(tmp_path: Path):
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


def test_the_cached_table_needs_neither_rliable_nor_pandas_nor_torch(tmp_path: Path):
    made = write_grid(tmp_path, ("spo", "vaco"), phases=3)
    expected = [asked("spo", 3, "Diverged")]
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


def test_the_cache_is_left_when_runs_options_or_expectations_change(tmp_path: Path):
    made = write_grid(tmp_path, ("spo", "vaco"), seeds=2, phases=3)
    folder = tmp_path / "reports" / "x"
    three = stats.cached_table(folder, made[:3], reps=50)
    four = stats.cached_table(folder, made, reps=50)
    assert (three.rows[1]["n_runs"], four.rows[1]["n_runs"]) == (1, 2)
    assert stats.cached_table(folder, made, reps=60).settings["reps"] == 60
    assert stats.cached_table(folder, made, [asked("spo", 7)], reps=60).notes != four.notes
    (folder / "table.json").write_text("{ torn")
    assert stats.cached_table(folder, made, reps=50) == four


def test_no_line_of_the_plain_table_is_wider_than_asked(tmp_path: Path):
    made = write_grid(tmp_path, (*ALGORITHMS[:2], "mine[delta=0.1,realign_every=step,rho_bar=2.0]"), phases=3)
    table = stats.table(made, reps=50)
    for width in (80, 100, 120):
        lines = tables.plain(table, width).splitlines()
        assert max(map(len, lines)) <= width
        body = next(i for i, line in enumerate(lines) if line.startswith("---"))
        assert lines[body - 1].startswith("algorithm") and len(lines[body + 1 : body + 4]) == 3
    assert " clip%  " in tables.plain(table, 120) and "no room for clip%" in tables.plain(table, 80)


def test_names_are_text_and_not_terminal_markup(tmp_path: Path):
    from rich.console import Console

    made = [write_run(tmp_path, "[red]x[/red]", 0), write_run(tmp_path, "a", 0, sampled=5.0)]
    made[1] = replace(made[1], record=made[1].record | {"label": "a\x1b[31mb"})  # the store lets none of these through
    table = stats.table(made)
    console = Console(width=120, file=io.StringIO(), force_terminal=False)
    console.print(tables.render(table))
    for text in (console.file.getvalue(), tables.plain(table)):
        assert "[red]x[/red]" in text
        assert "\x1b" not in text and "a?[31mb" in text


def test_csv_holds_every_column_and_defuses_formulas(tmp_path: Path):
    made = [write_run(tmp_path, "=cmd()", 0), write_run(tmp_path, "spo", 0, sampled=-5.0)]
    rows = list(csv.DictReader(io.StringIO(tables.to_csv(stats.table(made)))))
    assert tuple(rows[0]) == tables.COLUMNS
    assert rows[0]["algorithm"] == "'=cmd()"
    assert rows[1]["raw_mean"] == "-5.0" and rows[1]["iqm_low"] == ""


@pytest.mark.parametrize("seconds, text", [(None, "–"), (0.4, "0s"), (59.6, "1m00s"), (200, "3m20s"), (7500, "2h05m")])
def test_durations_read_as_a_person_says_them(seconds: float | None, text: str):
    assert tables.duration(seconds) == text
