"""Normalised scores: the constants of each scale, and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.figures.lag_tables import risk_table
from staleharness.statistics import aggregate as stats
from staleharness.statistics import scores
from staleharness.statistics.results import Results
from staleharness.statistics.table import distinct_aggregates, plain


def test_minmax_uses_extremes_over_algorithms_and_capacities(tmp_path: Path):
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


def test_ppo_normalisation_scales_by_ppo_clip_at_k1(tmp_path: Path):
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


def test_frozen_constants_map_random_to_0_and_reference_to_1(tmp_path: Path):
    hopper = scores.constants()["envs"]["Hopper-v5"]
    low, high = hopper["random"]["sampled"]["return"], hopper["reference"]["return"]
    made = [write_run(tmp_path, "vaco", 0, sampled=low), write_run(tmp_path, "spo", 0, sampled=high)]
    assert {r["algorithm"]: r["iqm"] for r in stats.table(made, normalise="frozen").rows} == {"vaco": 0.0, "spo": 1.0}


def test_frozen_constants_refuse_an_unknown_environment(tmp_path: Path):
    with pytest.raises(UserError, match=r"no constants for Nowhere-v0 .* Hopper-v5"):
        stats.table([write_run(tmp_path, env="Nowhere-v0")], normalise="frozen")


def test_every_frozen_constant_names_its_source():
    constants = scores.constants()
    assert constants["version"] >= 1
    for entry in constants["envs"].values():
        assert set(entry["random"]) == {"sampled", "deterministic"}
        assert entry["reference"] is None or entry["reference"]["source"]


def test_equal_scores_are_normalised_to_one_half_with_a_note(tmp_path: Path):
    table = stats.table([write_run(tmp_path, "vaco", s, sampled=5.0) for s in (0, 1)], reps=50)
    assert table.rows[0]["iqm"] == 0.5
    assert any("same score" in note for note in table.notes)


def test_returns_as_they_are_have_no_gap_and_few_digits(tmp_path: Path):
    returns = [write_run(tmp_path, "spo", seed, env="Pendulum-v1", sampled=-900.0) for seed in range(2)]
    table = stats.table(returns, normalise="raw", reps=50)
    assert table.rows[0]["optimality_gap"] is None and "optimality_gap" not in distinct_aggregates(table)
    header, row = (line.split() for line in plain(table, 200).splitlines() if line.startswith(("algorithm", "spo")))
    assert "gap" not in header and "-900.0" in row
    answers = [write_run(tmp_path / "b", "tis", 0, env="word-problems", kind="language", deterministic=0.25)]
    for scale in ("raw", "minmax"):
        table = stats.table(answers, normalise=scale, reps=50)
        assert "gap" in plain(table, 200) and "0.250" in plain(table, 200)


def test_a_share_does_not_depend_on_the_scale_of_the_table(tmp_path: Path):
    runs = Results.of([write_run(tmp_path, "vaco", 0, capacity=k, sampled=900.0 - 40 * k) for k in (1, 16)])
    shares = [risk_table(runs, runs.table(normalise=n, reps=50)).to_csv().splitlines()[1:] for n in ("raw", "minmax")]
    assert shares[0] == shares[1]
