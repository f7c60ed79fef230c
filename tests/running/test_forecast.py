"""Forecasts: cost of similar runs, runs that fit on a machine, and lag that a run is too short for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from results_helper import write_run

from staleharness.api import plan
from staleharness.running import forecast, plan_execution
from staleharness.running.forecast import SimilarRuns, blind_notes, estimate, idle_setting_notes, lag_notes
from staleharness.running.plan import Plan
from staleharness.running.runner_interface import ResourceRequest
from staleharness.running.runners import local
from staleharness.store.store import Store

LIKE = {"num_envs": 8, "num_steps": 256, "epochs": 10, "minibatches": 32, "threads": 1, "device": "cpu"}


@pytest.fixture
def two_runs() -> Plan:
    return plan(env="Hopper", algo="spo", seeds=2, settings={k: v for k, v in LIKE.items() if k != "device"})


def store_run(root: Path, seed: int, gigabytes: float, seconds: float = 60.0, **other: int) -> None:
    """A run of 12 phases of 2,048 steps."""
    said = {"peak_memory": int(gigabytes * 1e9)}
    evaluated = {"evaluations": 6, "evaluation_episodes": 5, "final_episodes": 20}
    write_run(root, "spo", seed, seconds=seconds, settings={**LIKE, **evaluated, **other}, said=said)


def test_they_are_those_of_the_same_size_in_the_folder(tmp_path: Path, two_runs: Plan) -> None:
    spec, store = two_runs.runs[0].spec, Store(tmp_path)
    store_run(tmp_path, 0, 2.0, 60.0)
    store_run(tmp_path, 1, 9.0, 60.0, num_envs=64)
    ids = {int(run.spec["seed"]): run.id for run in store.read_all()}
    assert forecast.similar_runs(spec, store) == SimilarRuns(
        "stored", frozenset({ids[0]}), 12 * 2048 / 50, 10.0, 2 * 10**9
    )
    store_run(tmp_path, 2, 3.0, 30.0)
    ids = {int(run.spec["seed"]): run.id for run in store.read_all()}
    assert forecast.similar_runs(spec, store) == SimilarRuns(
        "stored", frozenset({ids[0], ids[2]}), 24 * 2048 / 75, 7.5, 3 * 10**9
    )


def test_runs_of_the_same_learner_and_capacity_are_preferred(tmp_path: Path, two_runs: Plan) -> None:
    """Ten seconds of sixty are evaluation; a run of another learner or capacity counts where there is no other."""
    spec, store = replace(two_runs.runs[0].spec, capacity=8), Store(tmp_path)
    store_run(tmp_path, 0, 2.0, 60.0)
    native, large = replace(spec, learner="native"), replace(spec, capacity=16)
    assert forecast.similar_runs(native, store) == forecast.similar_runs(spec, store)
    write_run(tmp_path, "spo", 1, seconds=24.0, settings={**LIKE, "learner": "native"}, said={"peak_memory": 10**9})
    write_run(tmp_path, "spo", 2, capacity=16, seconds=30.0, settings=LIKE, said={"peak_memory": 5 * 10**9})
    for wanted, seconds, memory in ((spec, 50, 2), (native, 20, 1), (large, 25, 5)):
        found = forecast.similar_runs(wanted, store)
        assert found is not None and (found.count, found.memory) == (1, memory * 10**9)
        assert found.speed == pytest.approx(12 * 2048 / seconds)
    both = plan(env="Hopper", algo="spo", k="8,16", seeds=1, settings={k: v for k, v in LIKE.items() if k != "device"})
    alone = [estimate([run], store, jobs=1).seconds or 0.0 for run in both.runs]
    assert estimate(both.runs, store, jobs=1).seconds == pytest.approx(sum(alone)) and alone[0] > 1.5 * alone[1]


def test_evaluations_are_estimated_apart_by_their_number_and_length(tmp_path: Path, two_runs: Plan) -> None:
    """A sixth of a stored run's 60 seconds is evaluation: 6 of 5 + 5 episodes and a last one of 20 + 20, as asked."""
    store_run(tmp_path, 0, 2.0)
    for changes, times in (
        ({}, 1.0),
        ({"evaluation_episodes": 50}, (6 * 100 + 40) / 100),
        ({"final_episodes": 100}, (6 * 10 + 200) / 100),
        ({"evaluations": 12}, (12 * 10 + 40) / 100),
    ):
        spec = replace(two_runs.runs[0].spec, **changes)
        found = forecast.similar_runs(spec, Store(tmp_path))
        assert found is not None and found.speed == pytest.approx(12 * 2048 / 50)
        assert found.evaluation == pytest.approx(10 * times), changes


def test_sampled_answers_of_all_problems_take_their_time(tmp_path: Path) -> None:
    like = {"minibatches": 1, "prompts": 2, "completions": 2, "completion_tokens": 8}
    spec = plan(env="word-problems", algo="ppo_clip", k=1, seeds=1, settings={**like, "steps": 8}).runs[0].spec
    stored = {name: getattr(spec, name) for name in spec.alike} | {"evaluations": 4, "evaluation_problems": 0}
    write_run(
        tmp_path, "ppo_clip", 0, kind="language", env="word-problems", phases=8, settings=stored
    )  # of 20 problems
    for changes, times in (
        ({"evaluations": 4, "evaluation_problems": 0}, 1),
        ({"evaluations": 4, "evaluation_problems": 0, "evaluation_samples": 3}, 4),
        ({"evaluations": 4, "evaluation_problems": 100}, 5),
        ({"evaluations": 8, "evaluation_problems": 0}, 9 / 5),
    ):
        found = forecast.similar_runs(replace(spec, **changes), Store(tmp_path))
        assert found is not None and found.evaluation == pytest.approx(times * 60 / 9), changes


def test_times_and_sizes_that_cannot_be_are_no_precedents(tmp_path: Path, two_runs: Plan) -> None:
    spec = two_runs.runs[0].spec
    store_run(tmp_path, 0, 2.0, seconds=0.0)
    found = forecast.similar_runs(spec, Store(tmp_path))
    assert found is None or found.where == "published"
    write_run(tmp_path, "spo", 1, settings=LIKE)  # of a version that did not say what memory it took
    ids = frozenset(run.id for run in Store(tmp_path).read_all())
    assert forecast.similar_runs(spec, Store(tmp_path)) == SimilarRuns("stored", ids, 24 * 2048 / 50, 5.0, 2 * 10**9)


def test_an_estimate_is_theirs(tmp_path: Path, two_runs: Plan) -> None:
    store_run(tmp_path, 7, 2.0, 60.0)
    steps = sum(run.spec.phases * run.spec.steps_per_phase for run in two_runs.runs)
    found = estimate(two_runs.runs, Store(tmp_path), jobs=2)
    assert found.seconds == pytest.approx((steps / (12 * 2048 / 50) + 2 * 10.0) / 2)
    assert found.source == "as 1 stored run like these took"


def test_a_run_that_two_estimates_rest_on_counts_once(tmp_path: Path) -> None:
    for seed in (7, 8):
        store_run(tmp_path, seed, 2.0)
    asked = plan(env="Hopper", algo="spo", k="4,8", seeds=1, settings={k: v for k, v in LIKE.items() if k != "device"})
    assert estimate(asked.runs, Store(tmp_path), jobs=1).source == "as 2 stored runs like these took"


def test_checkpoints_are_counted_three_for_each_run_at_a_time(tmp_path: Path, two_runs: Plan) -> None:
    write_run(tmp_path, "spo", 7, settings=LIKE, said={"checkpoint_bytes": 5_900_000_000})
    write_run(tmp_path, "spo", 8, settings=LIKE)  # of a version that did not say
    for jobs, text in ((1, "18 GB"), (2, "35 GB"), (9, "35 GB")):  # two runs are asked for
        found = estimate(two_runs.runs, Store(tmp_path), jobs=jobs)
        assert found.checkpoints == 3 * 5_900_000_000 * min(jobs, 2)
        assert found.text.endswith(f" of disk, plus up to {text} of checkpoints until then")
    store_run(tmp_path / "small", 7, 2.0)
    assert estimate(two_runs.runs, Store(tmp_path / "small"), jobs=2).text.endswith(" MB of disk")


def test_where_the_folder_has_none_they_are_the_published_ones(tmp_path: Path) -> None:
    quick = plan(env="Hopper", algo="spo", k=8, seeds=1).runs[0].spec
    found = forecast.similar_runs(quick, Store(tmp_path))
    assert found is not None and found.where == "published" and found.count >= 21
    assert 10**8 < found.memory < 4 * 10**9
    unheard = plan(env="Hopper", algo="spo", seeds=1, settings={"num_envs": 12}).runs[0].spec
    assert forecast.similar_runs(unheard, Store(tmp_path)) is None


def test_of_published_runs_the_fast_ones_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, two_runs: Plan) -> None:
    """Five runs of 12 x 2,048 steps, four of them slowed down by other work: the second fastest."""
    for seed, seconds in enumerate((60.0, 80.0, 300.0, 500.0, 2000.0)):
        store_run(tmp_path / "published", seed, 2.0, seconds)
    # ranks 0 to 4: the quantile .2 lies .8 of the way from the first to the second
    monkeypatch.setattr(forecast, "_published_runs", lambda: Store(tmp_path / "published").read_all())
    found = forecast.similar_runs(two_runs.runs[0].spec, Store(tmp_path / "none"))
    assert found is not None and found.where == "published" and found.count == 5
    assert 12 * 2048 / found.speed + found.evaluation == pytest.approx(60 + 0.8 * 20)


def test_published_runs_of_larger_capacities_bound_the_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, two_runs: Plan
) -> None:
    """Runs at K = 8 on a machine that did other work; those at 16 took half as long, those at 1 a tenth."""
    folder, spec = tmp_path / "published", replace(two_runs.runs[0].spec, capacity=8)
    for seed, capacity, seconds, memory in ((0, 8, 600.0, 2), (1, 16, 300.0, 5), (2, 1, 60.0, 1)):
        said = {"peak_memory": memory * 10**9}
        write_run(folder, "spo", seed, capacity=capacity, seconds=seconds, settings=LIKE, said=said)
    monkeypatch.setattr(forecast, "_published_runs", lambda: Store(folder).read_all())
    found = forecast.similar_runs(spec, Store(tmp_path / "none"))
    assert found is not None and (found.count, found.memory) == (2, 2 * 10**9)
    assert 12 * 2048 / found.speed + found.evaluation == pytest.approx(300 + 0.2 * 300)
    stored = forecast.similar_runs(spec, Store(folder))
    assert stored is not None and (stored.count, stored.memory) == (1, 2 * 10**9)


def test_phases_before_the_budget_take_their_time(tmp_path: Path) -> None:
    """A run of 3 + 9 phases in 60 seconds: another like it takes as long."""
    settings = {k: v for k, v in LIKE.items() if k != "device"} | {"fill_phases": 3}
    like = plan(env="Hopper", algo="spo", seeds=1, steps=9 * 2048, settings=settings)
    write_run(tmp_path, "spo", 0, seconds=60.0, settings={**LIKE, "fill_phases": 3}, said={"steps": 9 * 2048})
    assert estimate(like.runs, Store(tmp_path), jobs=1).seconds == pytest.approx(60.0)


def test_memory_limits_the_runs_at_a_time_unless_jobs_is_given(
    tmp_path: Path, two_runs: Plan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(local, "usable_cores", lambda: 16)
    monkeypatch.setattr(local, "memory", lambda: 8 * 10**9)
    store_run(tmp_path, 0, 3.0)
    store = Store(tmp_path)
    assert plan_execution.runner_for(two_runs, store).capacity == 2
    assert caplog.messages == ["2 at a time instead of 16: a run takes 3 GB, and this machine has 8 GB"]
    caplog.clear()
    assert plan_execution.runner_for(two_runs, store, jobs="4").capacity == 4 and not caplog.messages
    assert plan_execution.runner_for(two_runs, store, memory="1G").capacity == 8
    store_run(tmp_path, 1, 9.0)
    assert plan_execution.runner_for(two_runs, store).capacity == 1


def test_a_remote_machine_is_asked_for_a_quarter_more_memory(
    tmp_path: Path, two_runs: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[ResourceRequest] = []
    monkeypatch.setattr(plan_execution, "make_runner", lambda runner, request: heard.append(request))
    published = plan(env="Hopper", algo="spo", k=8, seeds=1)
    plan_execution.runner_for(published, Store(tmp_path), runner="slurm")
    store_run(tmp_path, 0, 2.0)
    plan_execution.runner_for(two_runs, Store(tmp_path), runner="slurm")
    plan_execution.runner_for(two_runs, Store(tmp_path), runner="slurm", jobs="3")
    plan_execution.runner_for(two_runs, Store(tmp_path), runner="slurm", memory="7G")
    assert [request.memory for request in heard] == [None, 2_500_000_000, 2_500_000_000, 7 * 10**9]


def test_runs_at_a_time_share_the_time_and_no_more_than_there_are(tmp_path: Path, two_runs: Plan) -> None:
    store_run(tmp_path, 7, 2.0, 60.0)
    store = Store(tmp_path)
    steps = sum(run.spec.phases * run.spec.steps_per_phase for run in two_runs.runs)
    alone = steps / (12 * 2048 / 50) + 2 * 10.0
    assert estimate(two_runs.runs, store, 1).seconds == pytest.approx(alone)
    for jobs in (2, 8):
        assert estimate(two_runs.runs, store, jobs).seconds == pytest.approx(alone / 2)


def lines(**asked: object) -> list[str]:
    return lag_notes(plan(env="Hopper", algo=["spo", "ppo_clip"], seeds=2, **asked))  # type: ignore[arg-type]


def test_a_run_too_short_for_its_lag_is_noted_once() -> None:
    (line,) = lines(k=[1, 8], steps=8192)
    assert "LAG=uniform at K=8 has a mean lag of 3.50 phases" in line and "0.75 over the 4 phases" in line
    assert lines(k=8, steps=2048)[0].endswith("over the 1 phase of a run")


@pytest.mark.parametrize("asked", [{"k": [1, 8]}, {"k": 16, "lag": "fixed:3"}, {"k": 1, "steps": 2048}])
def test_nothing_is_said_where_the_buffer_has_time_to_fill(asked: dict[str, object]) -> None:
    assert lines(**asked) == []


def test_a_capacity_that_no_run_can_fill_is_said() -> None:
    assert "at K=100000 has a mean lag of over 511.50" in lines(k=100_000)[0]


def test_a_plan_names_a_size_of_actors_that_no_lag_model_uses() -> None:
    asked: dict[str, Any] = {"env": "Hopper", "k": "4,8", "seeds": 1, "settings": {"envs_per_actor": 2}}
    assert idle_setting_notes(plan(**asked, algo="spo,ppo_clip")) == [
        "envs_per_actor=2 does nothing under LAG=uniform, which draws a version for each environment; leave it out"
    ]
    compared = "spo,ppo_clip[lag=delay:1]"
    assert idle_setting_notes(plan(**asked, algo=compared)) == [], "one setting for runs that are compared"
    assert idle_setting_notes(plan(env="bit-chain", algo="spo", seeds=1)) == []


@pytest.mark.parametrize(
    ("idle", "used", "reason"),
    [
        ("warm_epochs=3", "warm_phases=1", "with warm_phases=0"),
        ("behaviour=sampler", "mismatch=fp8", "without MISMATCH, as the version itself samples"),
        ("behaviour=version", "mismatch=fp8", "without MISMATCH, as the version itself samples"),
    ],
)
def test_a_plan_names_settings_that_do_nothing(idle: str, used: str, reason: str) -> None:
    asked: dict[str, Any] = {"env": "Hopper", "seeds": 1, "k": 4}
    assert idle_setting_notes(plan(**asked, algo="spo,ppo_clip", settings=idle)) == [
        f"{idle} does nothing {reason}; leave it out"
    ]
    assert idle_setting_notes(plan(**asked, algo=f"spo,ppo_clip[{used}]", settings=idle)) == []


def test_a_plan_names_methods_that_do_not_see_their_mismatch() -> None:
    algo = ["ppo_clip", "ppo_clip[anchor=proximal]", "tis[behaviour=version]", "tis[mismatch=none]"]
    asked: dict[str, Any] = {"env": "Hopper", "algo": algo, "k": [1, 8], "seeds": 2}
    assert blind_notes(plan(**asked)) == []
    assert blind_notes(plan(**asked, mismatch="fp8")) == [
        "ppo_clip is blind to MISMATCH=fp8, which changes only its data: its loss does not depend on μ",
        "tis is blind to MISMATCH=fp8, which changes only its data: behaviour=version",
    ]


def test_a_plan_names_corrections_of_no_mismatch() -> None:
    algo = ["icepop[clip=0.2,correct=engine]", "tis[correct=engine,mismatch=fp8]", "tis[clip=0.2]"]
    asked: dict[str, Any] = {"env": "Hopper", "algo": algo, "k": [1, 8], "seeds": 2}
    (line,) = blind_notes(plan(**asked))
    assert line == "icepop: without MISMATCH the version itself samples, so with correct=engine the weight is always 1"
    on_tokens = {"env": "word-problems", "algo": "tis[correct=engine]", "seeds": 1}
    assert len(blind_notes(plan(**on_tokens))) == 1
    for settings in ({"behaviour": "sampler"}, {"kv_cache": "keep"}):
        assert blind_notes(plan(**on_tokens, settings=settings)) == [], "its number may be another"
