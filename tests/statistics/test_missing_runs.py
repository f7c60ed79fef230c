"""Runs that diverged have no score: whoever reads what is left of their setting is told so."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.figures.named_figures import sheet
from staleharness.statistics.advice import advise
from staleharness.statistics.results import Results, load


def written(root: Path, stale: int) -> Results:
    for k, lag, seeds in ((1, 0.0, 5), (16, 8.0, stale)):
        for seed in range(seeds):
            said: Any = {"summary": {"lag_mean": lag, "gradient_lag_mean": 10 * lag}}
            task: Any = {"kind": "language", "env": "word-problems", "capacity": k, "said": said}
            write_run(root, "vaco", seed, deterministic=0.9 + 0.01 * seed, phases=4, **task)
    return load(root)


def test_advice_says_where_seeds_are_lacking(tmp_path: Path) -> None:
    found = advise(written(tmp_path / "three", 3))
    assert found.methods[0].row["budget"]["kind"] == "at least"
    assert any(
        note.startswith("fewer seeds than elsewhere: vaco on word-problems at K=16 (3 of 5); runs that diverged")
        for note in found.notes
    )
    assert not any("fewer seeds" in note for note in advise(written(tmp_path / "five", 5)).notes)


@pytest.mark.parametrize("zero", [float("nan"), float("inf"), float("-inf")])
def test_a_zero_that_is_no_number_is_refused(tmp_path: Path, zero: float) -> None:
    """Every method kept 100 % of it, at any lag."""
    with pytest.raises(UserError, match=f"ZERO={zero:g} is not a finite number, worst or auto"):
        advise(written(tmp_path, 5), zero=zero)


@pytest.mark.parametrize(
    ("problem", "said"), [("Diverged", ["1 run diverged and counts nowhere"]), ("Died", []), (None, [])]
)
def test_a_table_says_what_its_rows_leave_out(tmp_path: Path, problem: str | None, said: list[str]) -> None:
    runs = written(tmp_path, 4)
    lost = {"label": "vaco", "capacity": 16, "env": "word-problems", "seed": 4, "problem": problem}
    notes = runs.table([lost], reps=50, engine="quick").notes
    assert [note.partition(":")[0] for note in notes if "diverged and" in note] == said


def test_unequal_numbers_of_runs_weigh_in_the_iqm_and_the_table_says_so(tmp_path: Path) -> None:
    for env, n in (("A-v1", 4), ("B-v1", 2)):
        for seed in range(n):
            write_run(tmp_path, "vaco", seed, env=env, sampled=float(seed), phases=4)
    notes = load(tmp_path).table(reps=50, engine="quick").notes
    assert any("n is the smallest; in IQM and AUC an environment counts by its runs" in note for note in notes)


def test_a_capacity_without_any_run_is_no_column_of_lag_nan(tmp_path: Path) -> None:
    for k in (1, 4):
        for minibatches in (1, 2):
            label = f"vaco[minibatches={minibatches}]"
            write_run(tmp_path, label, 0, capacity=k, phases=4, settings={"minibatches": minibatches})
    results = load(tmp_path)
    lost = {"label": "vaco[minibatches=1]", "capacity": 16, "env": "Hopper-v5", "seed": 0, "problem": "Diverged"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = sheet("backward_forward", results, results.table([lost], reps=50, engine="quick"))
    assert [column.rpartition(", ")[2] for column in made.blocks[0].columns] == ["K = 1", "K = 4"]
