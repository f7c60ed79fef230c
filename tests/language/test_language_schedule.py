"""Rounds that a schedule plans, and rounds that processes race for: the same learner, and replays to the last bit."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from language_fixtures import Specs
from races import but_assigned, change_inside, digests_and_metrics, kill_one
from schedules import Group, lock_step, schedule
from tiny_model import write_problems
from trace_tables import trace_table

from staleharness.base.streams import seed_global_generators
from staleharness.errors import UserError
from staleharness.lag import parse_lag
from staleharness.language.spec import LanguageSpec
from staleharness.rollout_schedule import NEVER, Demand, Schedule
from staleharness.task import find_env
from staleharness.trace import read_trace, trace_bytes
from staleharness.training.loop import simulation_of

GivenSchedule = Callable[[Callable[[Demand], Schedule]], None]
PHASES, LENGTH = 4, 10


@pytest.mark.parametrize("lag", [0, 2])
def test_actors_in_lock_step_are_the_drawn_run(
    given_schedule: GivenSchedule, spec: Specs, tmp_path: Path, lag: int
) -> None:
    given_schedule(lambda demand: lock_step(demand, lag))
    write_problems(tmp_path)
    asked = spec(
        capacity=3,
        minibatches=2,
        steps=2 * PHASES,
        completions=6,
        extractor="last_number",
        env="gsm8k",
        data=str(tmp_path),
        learning_rate=3e-2,
    )
    drawn, said = digests_and_metrics(simulation_of(replace(asked, lag=f"fixed:{lag}")))
    planned, again = digests_and_metrics(simulation_of(replace(asked, lag="written")))
    assert planned == drawn and len(set(drawn)) > 1
    shown = [{k: v for k, v in m.items() if not k.startswith(("sample_factory", "rllib"))} for m in again]
    for mine, other in zip(shown, said, strict=True):
        changed = {k: (mine.get(k), v) for k, v in other.items() if mine.get(k) != v}
        assert set(changed) <= {"lags/at_cap"}, "what a drawn model promises beforehand, a schedule does not"


def test_rows_have_their_prompts_versions_and_masks(given_schedule: GivenSchedule, spec: Specs) -> None:
    """A prompt for each group that began, the dropped one among them; weights that change where the schedule says;
    masked tokens teach nothing."""
    short = [(0, 4, True), (1, LENGTH, False)]

    def answer(demand: Demand) -> Schedule:
        whole = [(0, demand.length, True)]
        return schedule(
            [Group(0, 0, whole), Group(1, 0, whole), Group(2, NEVER, whole), Group(0, 1, short), Group(1, 1, whole)],
            demand.rows,
        )

    given_schedule(answer)
    simulation: Any = simulation_of(spec(capacity=2, prompts=2, steps=2, lag="written"))
    simulation.advance()
    simulation.buffer.push(simulation.policy.snapshot(1, simulation.gradient_steps))
    made = simulation.collect(1).data
    prompts = simulation.sampler.prompts
    chosen = [simulation.sampler.problem(number) for number in (3, 4)]
    for row, index in zip(made.prompt[::3].tolist(), chosen, strict=True):
        assert row[-len(prompts.tokens[index]) :] == prompts.tokens[index]
    width = made.token.shape[1]
    expected = np.zeros((6, width), dtype=np.int64)
    expected[:3, 4:] = 1
    assert made.version.tolist() == expected.tolist()
    assert made.kept.tolist() == (1.0 - expected).tolist()
    assert made.group.tolist() == [0, 0, 0, 1, 1, 1]
    simulation.learner.begin(made, 1)
    (part,) = simulation.learner.minibatches(0)
    assert torch.equal(part.mask, made.mask * made.kept) and float(part.mask.sum()) < float(made.mask.sum())


def test_a_replay_draws_what_the_actors_of_its_trace_drew(
    given_schedule: GivenSchedule, spec: Specs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the global generators, of which a plugin's decoder or grader may draw."""

    def answer(demand: Demand) -> Schedule:
        segments = [(0, demand.length, True)]
        groups = [Group(actor, phase, segments) for actor, phase in ((1, 0), (0, 0), (1, 1), (0, 1))]
        return schedule(groups, demand.rows, apart=demand.length)

    given_schedule(answer)
    simulation: Any = simulation_of(spec(capacity=2, prompts=2, steps=2, lag="written"))
    decode, found = simulation.sampler.decode, []
    monkeypatch.setattr(simulation.sampler, "decode", lambda *a: (found.append(random.random()), decode(*a))[1])
    simulation.advance()
    simulation.advance()
    expected = []
    for actor, nth in ((1, 0), (0, 0), (1, 1), (0, 1)):
        seed_global_generators(simulation.spec.seed, "act", actor, nth)
        expected.append(random.random())
    assert found == expected and len(set(found)) == 4
    assert simulation.sampler.copies is not None, "weights in memory of their own, as in an actor"


@pytest.mark.parametrize("length", [4, 8, 10])
def test_a_scaled_trace_acts_with_its_versions_in_proportion(spec: Specs, tmp_path: Path, length: int) -> None:
    """Rows of 16 decisions between which weights are fetched every 4: scaled, they change at other places."""
    lines = [(a, n, n, 0, float(n), n + 0.5) for n in range(3) for a in (0, 1) for _ in range(3)]
    table = trace_table(16, lines, rows_per_group=3)
    last = table["phase"] == 2
    table.loc[last, "versions"] = pd.Series([[0, 1, 2]] * 6, index=table.index[last])
    table.loc[last, "ends"] = pd.Series([[4, 8, 16]] * 6, index=table.index[last])
    path = tmp_path / "trace.parquet"
    path.write_bytes(trace_bytes(table, {"source": "actors", "decisions": 16, "fetch": 4}))
    lag = f"trace[file={path},lengths=scale]"
    asked = spec(capacity=3, prompts=2, steps=3, completion_tokens=length, lag=lag)
    simulation: Any = simulation_of(asked)
    for _ in range(2):
        simulation.advance()
    simulation.buffer.push(simulation.policy.snapshot(2, simulation.gradient_steps))
    made = simulation.collect(2).data
    expected = np.repeat([0, 1, 2], [length // 4 + (length % 4 > 0), length // 4, length // 2])[:length]
    assert len(expected) == length and float(made.mask.sum()) > 6 * length / 3
    for row, mask in zip(made.version.numpy(), made.mask.numpy() > 0, strict=True):
        assert row[mask].tolist() == expected[: len(mask)][mask].tolist()


@pytest.mark.parametrize(
    ("fetch", "mismatch", "experts", "kv_cache"),
    [
        (0, "none", "none", "recompute"),
        (4, "none", "none", "recompute"),
        (4, "none", "none", "keep"),
        (0, "sampling[top_p=0.9]", "none", "recompute"),
        (4, "noise:0.1+int8", "none", "recompute"),
        (0, "int4", "R3", "recompute"),
    ],
)
@pytest.mark.long
def test_the_replay_of_a_race_is_the_race_bit_for_bit(
    spec: Specs, mixture: Specs, tmp_path: Path, fetch: int, mismatch: str, experts: str, kv_cache: str
) -> None:
    """With weights that are fetched inside completions, with an actor that is killed, with log-probabilities of the
    decoder as μ (kv_cache=keep) and with routing replay."""
    lag = f"async[actors=2,fetch={fetch},delay=0.004,spread=3.0]"
    write_problems(tmp_path, 5 if experts == "none" else 7)
    asked = (spec if experts == "none" else mixture)(
        capacity=9,
        routing_replay=experts,
        lag=lag,
        steps=6,
        completion_tokens=12,
        completions=6,
        extractor="last_number",
        env="gsm8k",
        data=str(tmp_path),
        learning_rate=3e-2,
        mismatch=mismatch,
        kv_cache=kv_cache,
    )
    simulation: Any = simulation_of(asked)
    wait = change_inside(simulation, simulation.generator)

    def after() -> None:
        wait()
        if simulation.phase == 3:
            kill_one(simulation.generator)

    hashes, said = digests_and_metrics(simulation, after)
    path = tmp_path / "trace.parquet"
    path.write_bytes(simulation.artifacts()["trace.parquet"])
    again, repeated = digests_and_metrics(simulation_of(replace(asked, lag=f"trace:{path}")))
    assert again == hashes and len(set(hashes)) > 1
    assert but_assigned(repeated) == but_assigned(said), "accounts and all"
    _, rows = read_trace(str(path))
    assert sum(sum(m["lag_histogram"][1:]) for m in said) > 0, "nothing was stale, so nothing was shown"
    assert rows["actor"].nunique() == 3
    assert (rows["versions"].map(len) > 1).any() == bool(fetch)
    lengths = rows.loc[rows["fate"] == "trained", "ends"].map(max)
    assert lengths.max() <= 12 and lengths.nunique() > 1


@pytest.mark.slow
@pytest.mark.parametrize("fetch", [0, 5])
def test_several_actors_race_with_the_model_of_word_problems(tmp_path: Path, fetch: int) -> None:
    """The model that learns, warm start and all: it learns under real lag, and the replay is the run."""
    lag = f"async[actors=4,queue=2.0,fetch={fetch},delay=0.004,spread=6.0,slow=1]"
    asked = LanguageSpec(
        env="word-problems",
        algorithm="ppo_clip",
        hyper={"clip": 0.2, "clip_high": 0.0, "anchor": "behaviour"},
        capacity=16,
        lag=lag,
        steps=16,
        prompts=6,
        completions=16,
        learning_rate=7e-4,
        evaluations=1,
        prompt_tokens=64,
        completion_tokens=48,
    )
    simulation: Any = simulation_of(asked)
    hashes, said = digests_and_metrics(simulation)
    path = tmp_path / "trace.parquet"
    path.write_bytes(simulation.artifacts()["trace.parquet"])
    again, repeated = digests_and_metrics(simulation_of(replace(asked, lag=f"trace:{path}")))
    assert again == hashes and but_assigned(repeated) == but_assigned(said)
    _, rows = read_trace(str(path))
    trained = rows[rows["fate"] == "trained"]
    assert trained["actor"].nunique() == 4 and len(trained) == 16 * 6 * 16
    assert sum(sum(m["lag_histogram"][2:]) for m in said) > 0, "nothing was older than a phase"
    assert (trained["versions"].map(len) > 1).any() == bool(fetch)
    assert said[-1]["eval_deterministic"] > said[0]["untrained/deterministic"]


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"lag": "async", "dynamic_sampling": True}, "dynamic_sampling draws more groups than LAG=async plans"),
        ({"lag": "async", "device": "cuda"}, "acts on the CPU"),
    ],
)
def test_what_cannot_be_raced_for_is_refused(spec: Specs, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        find_env("word-problems")[1].check(spec(**changes))


@pytest.mark.parametrize(
    "lag",
    [
        "areal[eta=2,row_time=2.0]",
        "areal[eta=2,interruptible=false]",
        "partial",
        "delay:2",
        "slime:2",
        "megatron[lag=0.0,submit=R,consume=G]",
        "rllib_appo[slots=1.0,row_time=2.0]",
        "queue[max_lag=1,on_stale=mask_tokens,slots=1.5]",
    ],
)
@pytest.mark.long
def test_the_lags_of_a_round_are_those_of_its_schedule(spec: Specs, lag: str) -> None:
    asked = spec(capacity=12, prompts=3, steps=6, lag=lag)
    assert asked.demand is not None
    plan = parse_lag(lag, asked.capacity).schedule(asked.demand)
    simulation: Any = simulation_of(asked)
    stale = 0
    for phase, record in enumerate(simulation):
        rows = plan.trained_in(phase)
        versions, kept = plan.along(rows, asked.completion_tokens)
        begun = phase - versions[:, 0]
        said: dict[str, Any] = record.metrics
        assert said["lag_max"] <= (phase - versions).max()
        if kept.all() and (plan.newest[rows] == plan.oldest[rows]).all() and begun.min() == begun.max():
            assert said["lag_mean"] == pytest.approx(begun[0])
        if kept.all():  # the first token of a row is the oldest
            assert said["lag_max"] == np.flatnonzero(said["lag_histogram"]).max() == begun.max()
        stale += said["lag_max"] > 0
    assert stale


def test_a_batch_that_is_trained_on_again_has_the_same_completions(spec: Specs) -> None:
    asked = spec(capacity=20, prompts=2, steps=10, lag=(lag := "rllib_appo[slots=1.0,row_time=3.0]"))
    assert asked.demand is not None
    plan = parse_lag(lag, asked.capacity).schedule(asked.demand)
    again = 0
    rounds: list[dict[str, Any]] = [record.metrics for record in simulation_of(asked)]
    for phase, said in enumerate(rounds):
        first = int(plan.phase[plan.trained_in(phase)[0]])
        again += first != phase
        assert said["reward"] == rounds[first]["reward"] and said["rollout_length"] == rounds[first]["rollout_length"]
        assert said["sequences/reused"] == again * 2 * asked.completions
    assert again > 1


def test_batches_are_trained_on_again_where_time_follows_length(spec: Specs) -> None:
    lag = "rllib_appo[slots=1.0,row_time=3.0,pace=length]"
    rounds: list[dict[str, Any]] = [
        record.metrics for record in simulation_of(spec(capacity=20, prompts=2, steps=10, lag=lag))
    ]
    assert len(rounds) == 10 and rounds[-1]["sequences/reused"] > 0


def test_a_small_buffer_is_refused_with_the_k_it_needs(spec: Specs) -> None:
    asked = spec(capacity=2, prompts=3, steps=30, lag="areal:4")
    with pytest.raises(UserError, match=r"has lags of up to \d+ phases, and K=2 .*; give K=\d+"):
        find_env(asked.env)[1].check(asked)
