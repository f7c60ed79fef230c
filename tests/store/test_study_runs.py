"""Runs of a study in a results folder, by the seeds that it names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.running.plan import plan
from staleharness.store.bundle_writer import pack
from staleharness.store.store import Store
from staleharness.store.study_runs import read_study_runs
from staleharness.study import read_study, sweep_request


def test_a_study_names_its_seeds(tmp_path: Path) -> None:
    text = 'env = "Hopper"\nalgorithm = "spo"\nseeds = {}\n[paper]\nseeds = {}\n'
    (file := tmp_path / "study.toml").write_text(text.format("[3, 7]", "2"))
    study = read_study(file)
    assert list(study.seed_numbers) == [3, 7] and list(study.at("paper").seed_numbers) == [0, 1]
    assert [run.spec.seed for run in plan(replace(study, paper={})).runs] == [3, 7]
    assert [run.spec.seed for run in plan(sweep_request(spec_file=str(file), seeds="1")).runs] == [0]
    for seed in (3, 4, 7):
        write_run(tmp_path / "results", "spo", seed, capacity=1)
    found = read_study_runs(tmp_path / "results", replace(study, preset="quick"), "small")
    assert found is not None and sorted(run.seed for run in found.runs) == [3, 7] and found.other_runs == 1
    assert [request["seed"] for request in found.requests] == [3, 7]


def test_a_study_reuses_the_runs_of_another(tmp_path: Path) -> None:
    """`other` holds a run that the study has with other numbers, one that it lacks, and two that it does not ask for.
    Packed, the study's bundle holds its own runs alone."""
    (file := tmp_path / "study.toml").write_text(
        'env = "Hopper"\nalgorithm = ["spo", "vaco"]\nreuse = "other"\nseeds = 1\n'
    )
    study = replace(read_study(file), preset="quick")
    own = write_run(tmp_path / "results" / "study", "spo", 0, capacity=1)
    write_run(tmp_path / "results" / "other", "spo", 0, capacity=1, sampled=7.0)
    reused = write_run(tmp_path / "results" / "other", "vaco", 0, capacity=1)
    write_run(tmp_path / "results" / "other", "vaco", 1, capacity=1)
    write_run(tmp_path / "results" / "other", "vaco", 0, capacity=4)
    found = read_study_runs(tmp_path / "results" / "study", study, "small")
    assert found is not None and found.complete and found.other_runs == 0
    assert [run.path for run in found.runs] == [own.path, reused.path]
    alone = read_study_runs(tmp_path / "results" / "study", replace(study, reuse=("absent",)), "small")
    assert alone is not None and [run.path for run in alone.runs] == [own.path]

    write_run(tmp_path / "results" / "study", "vaco", 0, capacity=1)  # a copy of the one that is reused
    assert "1 of 2 runs" in pack(
        str(tmp_path / "results" / "study"), str(tmp_path / "results" / "packed"), str(file), study=study
    )
    assert [run.label for run in Store(tmp_path / "results" / "packed").read_all()] == ["spo"]


@pytest.mark.parametrize("seeds", ["[]", "[1, 1]", "[-1, 2]", '["a"]', "0", "0.5"])
def test_seeds_that_are_none_are_one_line(tmp_path: Path, seeds: str) -> None:
    (file := tmp_path / "study.toml").write_text(f'env = "Hopper"\nalgorithm = "spo"\nseeds = {seeds}\n')
    with pytest.raises(UserError, match=r"(?i)seeds.*"):
        plan(read_study(file))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('env = "Hopper"\nsteps = 8', "steps is a setting; write it under [settings]"),
        ('env = "Hopper"\n[settings]\nlag = "oldest"', "lag belongs at the top of the file, not under [settings]"),
        ('env = "Hopper"\nseed = 8', "unknown option 'seed'; did you mean 'seeds'?"),
    ],
)
def test_a_key_in_the_wrong_place_is_told_where_it_belongs(tmp_path: Path, text: str, words: str) -> None:
    (file := tmp_path / "study.toml").write_text(text)
    with pytest.raises(UserError, match=re.escape(f"spec file {file}: {words}")):
        read_study(file)
