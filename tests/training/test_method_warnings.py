"""Warnings of mechanisms that cannot act under a run's settings: when, in log and record, and in the table's notes."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
from results_helper import write_run
from small_specs import small_control

from staleharness.algorithm import ALGORITHMS
from staleharness.control.spec import ControlSpec
from staleharness.errors import Interrupted
from staleharness.language.spec import LanguageSpec
from staleharness.running.runner_interface import Job
from staleharness.running.worker import execute
from staleharness.statistics import aggregate as stats
from staleharness.statistics.table_notes import on_warnings
from staleharness.store.store import Store
from staleharness.training.method_descriptions import describe, warnings_of

CONTROL = ControlSpec(env="Hopper-v5", algorithm="ppo_clip", capacity=8)
TOKENS = LanguageSpec(env="word-problems", algorithm="ppo_clip", capacity=8)
SMALL = small_control(2, 2, 16, algorithm="decoupled_ppo", epochs=1, minibatches=1)


def test_idle_mechanisms_are_reported_for_stale_data_only() -> None:
    decoupled = ALGORITHMS["decoupled_ppo"]()
    (line,) = warnings_of(decoupled, TOKENS)
    assert line.startswith("decoupled_ppo: its proximal policy is recomputed")
    assert warnings_of(decoupled, replace(TOKENS, capacity=1)) == []
    assert warnings_of(decoupled, replace(TOKENS, minibatches=4)) == []
    assert warnings_of(decoupled, CONTROL) == []  # 80 gradient steps a phase
    assert len(warnings_of(decoupled, replace(CONTROL, epochs=1, minibatches=1))) == 1
    assert warnings_of(ALGORITHMS["ppo_clip"](), TOKENS) == []


def test_a_correction_of_the_engine_alone_is_idle_without_mismatch() -> None:
    engine = ALGORITHMS["tis"](correct="engine")  # type: ignore[call-arg]
    for spec in (CONTROL, TOKENS, replace(TOKENS, capacity=1)):
        assert [line.split(":")[0] for line in warnings_of(engine, spec)] == ["tis"]
        assert warnings_of(engine, replace(spec, mismatch="int4")) == []
    assert warnings_of(engine, replace(TOKENS, behaviour="sampler")) == []
    (line,) = warnings_of(engine, replace(TOKENS, mismatch="int4", behaviour="version"))
    assert "blind" in line


def test_two_factors_on_the_step_size_are_reported() -> None:
    vcpo = ALGORITHMS["vcpo"]()
    assert warnings_of(vcpo, TOKENS) == warnings_of(ALGORITHMS["ppo_clip"](), replace(TOKENS, step_size="ess")) == []
    (line,) = warnings_of(vcpo, replace(TOKENS, step_size="ess"))
    assert line == "vcpo scales its steps itself, and step_size=ess multiplies that factor"


def test_an_idle_mechanism_is_in_log_and_record(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In two parts: the second resumes from a checkpoint and does not repeat the warning."""
    caplog.set_level(logging.INFO, "staleharness")
    spec = replace(SMALL, steps=64 * 3)
    job = Job("0" * 12, "decoupled_ppo", spec.to_dict(), str(tmp_path))
    Store(tmp_path).open_for_writing()
    with pytest.raises(Interrupted):
        execute(job, lambda event: None, lambda: True)
    path = execute(job, lambda event: None, lambda: False)
    decoupled = ALGORITHMS["decoupled_ppo"]()
    printed = caplog.text
    assert printed.count(f"warning: {warnings_of(decoupled, spec)[0]}\n") == 1 and "resumed after" in printed
    record = json.loads((path / "run.json").read_text())
    assert record["warnings"] == warnings_of(decoupled, spec)
    assert record["method"] == describe(decoupled, spec)


def test_a_warning_is_noted_once_with_its_methods_and_capacities(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path, label, seed, capacity=k, said={"warnings": [f"tis: {what}"] if k > 1 else []})
        for label, what in (("tis", "it is idle"), ("tis[cap=3]", "it is idle"))
        for k in (1, 4, 8)
        for seed in (0, 1)
    ]
    runs.append(write_run(tmp_path, "vaco", 0, capacity=4, said={"warnings": ["something else"]}))
    runs.append(write_run(tmp_path, "spo", 0, capacity=4))  # stored before records had warnings
    assert on_warnings(runs) == ["tis, tis[cap=3] (K = 4, 8): it is idle", "vaco (K = 4): something else"]
    assert on_warnings(runs)[0] in stats.table(runs, reps=50).notes
    assert on_warnings([r for r in runs if r.record["label"] == "vaco"]) == ["vaco: something else"]
