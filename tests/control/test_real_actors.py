"""A run whose actors are processes leaves a trace, and the replay of that trace ends with the same weights."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known_plugins import loaded_plugins
from places import HELPERS
from races import but_assigned, change_inside, digests_and_metrics, kill_one, learner_digest, until
from small_specs import small_control

from staleharness.control.rollout_sources import EnvironmentActor
from staleharness.control.spec import ControlSpec
from staleharness.errors import UserError
from staleharness.task import find_env
from staleharness.trace import read_trace
from staleharness.training.checkpoint import load_newest, save
from staleharness.training.loop import simulation_of

PHASES = 6
DELAY = 0.003  # seconds
LAG = f"async[actors=3,queue=2.0,fetch=20,delay={DELAY},spread=4.0,train=0.04]"
SMALL = small_control(PHASES, 4, 50, capacity=8, lag=LAG, minibatches=4)


def record_run(spec: ControlSpec, to: Path, kill_after: int | None = None) -> tuple[list[str], list[dict[str, Any]]]:
    """Hash of the learner and metrics after each phase of a run with processes, which leaves its trace there."""
    simulation: Any = simulation_of(spec)
    wait = change_inside(simulation, simulation.actors)

    def after() -> None:
        wait()
        if simulation.phase == kill_after:
            kill_one(simulation.actors)

    found = digests_and_metrics(simulation, after)
    to.write_bytes(simulation.artifacts()["trace.parquet"])
    return found


def replay_run(spec: ControlSpec, trace: Path) -> tuple[list[str], list[dict[str, Any]]]:
    return digests_and_metrics(simulation_of(replace(spec, lag=f"trace:{trace}")))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[dict[str, Any]]]:
    """One run in which an actor is killed in the middle."""
    path = tmp_path_factory.mktemp("trace") / "trace.parquet"
    return path, *record_run(SMALL, path, kill_after=3)


@pytest.mark.long
def test_replay_is_bit_identical_though_an_actor_was_killed(run: Any) -> None:
    path, hashes, metrics = run
    again, said = replay_run(SMALL, path)
    assert again == hashes and len(set(hashes)) == PHASES
    assert but_assigned(said) == but_assigned(metrics), "accounts and all"
    _, rows = read_trace(str(path))
    trained = rows[rows["fate"] == "trained"]
    assert rows["actor"].nunique() == 4 and set(rows["fate"]) <= {"trained", "queued", "in_flight", "lost"}
    assert trained["actor"].nunique() >= 3
    assert sum(sum(m["lag_histogram"][1:]) for m in metrics) > 0, "nothing was stale, so nothing was shown"
    assert (trained["versions"].map(len) > 1).any(), "no weights changed inside a row"


def test_plugins_that_draw_from_global_generators_are_replayed_too(tmp_path: Path) -> None:
    with loaded_plugins(HELPERS / "drawing_plugin.py"):
        spec = replace(SMALL, env="Noisy-v0", algorithm="draws", steps=3 * 4 * 50)
        hashes, metrics = record_run(spec, tmp_path / "trace.parquet")
        again, said = replay_run(spec, tmp_path / "trace.parquet")
    assert again == hashes and but_assigned(said) == but_assigned(metrics)


def test_draws_depend_on_the_actor_and_its_group() -> None:
    def make(*given: Any) -> None:
        raise RuntimeError(random.random())

    def drawn(number: int, nth: int) -> str:
        actor: Any = EnvironmentActor(SMALL, find_env(SMALL.env)[1](), None, number)
        actor.collector.generate = make
        with pytest.raises(RuntimeError) as caught:
            actor.generate(None, nth, None)
        actor.collector.env.close()
        return str(caught.value)

    before = random.getstate()
    first, again, later, other = drawn(0, 1), drawn(0, 1), drawn(0, 2), drawn(1, 1)
    random.setstate(before)
    assert first == again and len({first, later, other}) == 3


def test_the_ledger_of_a_race_closes_and_is_that_of_its_trace(run: Any) -> None:
    """Per phase the loop sees to it; at the end the trace adds what was under way."""
    path, _, metrics = run
    _, rows = read_trace(str(path))
    last, trained = metrics[-1], rows[rows["fate"] == "trained"]
    assert last["sequences/trained"] == len(trained) == PHASES * 4
    assert last["decisions/trained"] == trained["ends"].map(max).sum() == PHASES * 4 * 50
    lost = rows[rows["fate"] == "lost"]
    assert last["sequences/lost"] == len(lost) <= 1 and last["decisions/lost"] == lost["ends"].map(max).sum()
    finished = rows[rows["made_at"].notna()]
    assert last["sequences/generated"] <= len(finished) + len(lost) <= len(rows)
    for unit in ("sequences", "decisions"):
        parts = (last[f"{unit}/{fate}"] for fate in ("trained", "queued", "lost"))
        assert last[f"{unit}/generated"] == sum(parts)
    assert lost["made_at"].isna().all() and lost["left_in"].isin(range(PHASES)).all()
    assert lost["began_at"].notna().all() and (lost["finished_in"] == -1).all()


def test_what_is_stated_is_the_pace(run: Any) -> None:
    """A decision takes at least `delay` seconds of its actor, and a phase of training at least `train`."""
    said, rows = read_trace(str(run[0]))
    taken = rows[rows["phase"] >= 0].groupby("phase")["trained_at"].first().to_numpy()
    published = np.array(said["published_at"])
    assert len(published) == PHASES - 1 and (published - taken[:-1] >= 0.04 - 1e-5).all()
    assert (taken[1:] >= published).all()
    made = rows[rows["made_at"].notna() & (rows["actor"] < 3)]
    least = 50 * DELAY * (1 + 3 * made["actor"] / 2)
    assert (made["made_at"] - made["began_at"] >= least - 1e-5).all()


def test_lag_is_counted_as_others_count_it_too(run: Any) -> None:
    for m in run[2]:
        start = m["gradient_lag_mean"]
        assert m["sample_factory_lag_mean"] == pytest.approx(start + 7)  # 2 epochs of 4 minibatches, 7 before the last
        assert m["rllib_lag_mean"] == pytest.approx(start + 3.5)
        assert m["sample_factory_lag_max"] == 8 * m["lag_max"] + 7
        least = next(lag for lag, count in enumerate(m["lag_histogram"]) if count)
        assert m["sample_factory_lag_min"] == 8 * least + 7


@pytest.mark.parametrize("changes", [{"seed": 7}, {"algorithm": "vaco"}, {"env": "Pendulum-v1"}, {"steps": 3 * 4 * 50}])
@pytest.mark.long
def test_a_trace_is_lag_for_any_other_run(run: Any, changes: dict[str, Any]) -> None:
    """With another seed or method other weights, and the same lags, phase for phase."""
    path, hashes, metrics = run
    again, said = replay_run(replace(SMALL, **changes), path)
    assert [m["lag_histogram"] for m in said] == [m["lag_histogram"] for m in metrics[: len(said)]]
    if "steps" not in changes:
        assert again[-1] != hashes[-1]


@pytest.mark.long
def test_a_resumed_run_has_new_actors_and_is_replayed_exactly(tmp_path: Path) -> None:
    spec = replace(SMALL, env="Pendulum-v1", steps=4 * 4 * 50, anneal_learning_rate=False)
    first: Any = simulation_of(spec)
    said = [first.advance().metrics for _ in range(2)]
    hashes = [learner_digest(first)]
    members = first.actors.pool.members  # each of which is to hold something
    until(lambda: all(m.group < 0 or m.counter.read(m.group) is not None for m in members))
    save(tmp_path, 2, first.state_dict())
    first.close()
    second: Any = simulation_of(spec)
    loaded = load_newest(tmp_path)
    assert loaded is not None
    second.load_state_dict(loaded)
    for record in second:
        said.append(record.metrics)
        hashes.append(learner_digest(second))
    path = tmp_path / "trace.parquet"
    path.write_bytes(second.artifacts()["trace.parquet"])
    again, repeated = replay_run(spec, path)
    assert again[1:] == hashes
    assert but_assigned(repeated) == but_assigned(said), "accounts and all"
    _, rows = read_trace(str(path))
    assert rows.loc[rows["fate"] == "trained", "actor"].max() > 2
    lost = rows[rows["fate"] == "lost"]
    assert len(lost) >= 3 and (lost["left_in"] == 2).all(), "what each of three actors held when the run stopped"
    queued = lost["finished_in"].isin([0, 1]).sum()
    assert said[1]["sequences/queued"] == queued, "counted then as queued, and now as lost"
    for m in said:
        assert m["sequences/lost"] == (len(lost) if m["phase"] >= 2 else 0)
    assert said[-1]["decisions/lost"] == lost["ends"].map(max).sum()
    assert said[-1]["decisions/dropped"] == 0


def test_a_run_says_that_it_is_not_a_function_of_its_settings() -> None:
    assert any("is not a function of its settings" in line for line in simulation_of(SMALL).warnings)
    assert not simulation_of(replace(SMALL, lag="uniform")).warnings


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"mechanism": "replay"}, "mechanism=replay is for lag models that draw"),
        ({"observation_statistics": "shared_live"}, "changes what an actor sees while it acts"),
        ({"device": "cuda"}, "acts on the CPU"),
        ({"lag": "async:0"}, "actors must be from 1 to 256, not 0"),
        ({"lag": "async[spread=0.5]"}, "spread must be at least 1"),
    ],
)
def test_what_processes_cannot_do_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        find_env("Hopper-v5")[1].check(replace(SMALL, **changes))


@pytest.mark.long
def test_actors_in_processes_act_with_copies_of_their_own(tmp_path: Path) -> None:
    spec, trace = replace(SMALL, mismatch="noise:0.2"), tmp_path / "trace.parquet"
    hashes, metrics = record_run(spec, trace)
    again, said = replay_run(spec, trace)
    assert again == hashes and but_assigned(said) == but_assigned(metrics)
    assert all(m["mismatch/kl_k3"] > 0 for m in metrics)
    assert replay_run(SMALL, trace)[0] != hashes
