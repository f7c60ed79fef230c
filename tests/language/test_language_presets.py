"""The presets of language tasks: runs that can be planned, and the lag model that a preset may bring along."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from staleharness.algorithm import ALGORITHMS
from staleharness.errors import UserError
from staleharness.language.spec import LanguageSpec
from staleharness.running.plan import PlannedRun, plan
from staleharness.store.study_runs import read_study_runs
from staleharness.study import read_study, sweep_request

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"

ADDED_LATER = {*"aspo bapo ce_gppo dcpo dg gac gmpo ipo minirl oapl prime_rl sapo verl vespo".split()}
"""Methods that came after the study's runs."""


def plan_run(**flags: str) -> PlannedRun:
    (run,) = plan(sweep_request(**{"env": "word-problems", "k": "16", "algo": "vaco", "seeds": "1", **flags})).runs
    return run


@pytest.mark.parametrize("preset", LanguageSpec.presets)
def test_a_preset_is_whole_rounds_and_tunes_methods_that_there_are(preset: str) -> None:
    settings = dict(LanguageSpec.presets[preset])
    for name, options in dict(settings.pop("hyper", {})).items():
        assert options.keys() <= ALGORITHMS[name].hyper_parameter_types().keys()
    spec = LanguageSpec.from_dict({"env": "word-problems", "algorithm": "vaco", **settings})
    assert spec.steps == spec.phases * spec.steps_per_phase and spec.completions > 1


def test_stress_trains_on_the_oldest_data() -> None:
    run = plan_run(preset="stress")
    assert (run.spec.lag, run.label) == ("oldest", "vaco[delta=0.05]")
    settings = LanguageSpec.presets["stress"]
    assert all(getattr(run.spec, key) == settings[key] for key in settings if key not in ("hyper", "lag"))
    # the lag is K − 1 rounds over more than half of a run, and data of every version are trained on
    assert run.spec.phases >= 2 * (run.spec.capacity - 1)


def test_flags_override_a_preset_and_its_lag() -> None:
    assert plan_run(preset="stress", lag="fixed:3").spec.lag == "fixed:3"
    assert plan_run(preset="stress", lag="uniform", settings="learning_rate=1e-4").spec.learning_rate == 1e-4
    stale, fresh = plan(
        sweep_request(env="word-problems", k="16", algo="spo,spo[lag=fixed:0]", seeds="1", preset="stress")
    ).runs
    assert (stale.spec.lag, fresh.spec.lag) == ("oldest", "fixed:0")
    assert (stale.label, fresh.label) == ("spo", "spo[lag=fixed:0]")


def test_the_default_lag_is_uniform_and_ids_ignore_its_spelling() -> None:
    assert plan_run().spec.lag == "uniform"
    assert plan_run().run_id == plan_run(lag="uniform").run_id
    assert plan_run(preset="stress").run_id == plan_run(preset="stress", lag="oldest").run_id
    with pytest.raises(UserError, match=r"LAG='oldst'.*did you mean 'oldest'"):
        plan_run(preset="stress", lag="oldst")


def test_only_a_lag_beside_the_presets_is_in_the_reports_name() -> None:
    names = {
        lag: plan(sweep_request(env="word-problems", k="16", algo="spo", preset="stress", lag=lag)).name
        for lag in (None, "uniform", "oldest")
    }
    assert names[None] == names["oldest"] == "word-problems-K16-stress"
    assert names["uniform"] not in (names[None], "word-problems-K16-stress")


def test_the_published_study_asks_for_the_preset_as_it_is() -> None:
    study = read_study(EXPERIMENTS / "stress_word_problems.toml")
    assert (study.preset, study.capacity, study.settings) == ("stress", (16,), {})
    assert study.lag == LanguageSpec.presets["stress"]["lag"]
    labels = {run.label for run in plan(replace(study, seeds=1)).runs}
    all_methods = plan(replace(study, seeds=1, algorithm=("all",)))
    assert labels - {run.label for run in all_methods.runs} == {"ppo_clip[lag=fixed:0]"}
    assert {run.label for run in all_methods.runs} - labels == ADDED_LATER
    assert read_study_runs(EXPERIMENTS / "nowhere", study, "small") is None
