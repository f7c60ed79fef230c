"""A pipeline whose rows take as long as their completions are: long ones are old ones."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from language_fixtures import Specs

from staleharness.errors import UserError
from staleharness.lag import read_lag
from staleharness.language import length_paced_groups
from staleharness.language.spec import LanguageSpec
from staleharness.pipeline_lag_model import PipelineLag
from staleharness.rollout_schedule import NEVER, Demand
from staleharness.task import find_env
from staleharness.training.loop import simulation_of

pytestmark = pytest.mark.usefixtures("grades_by_length")

PACED = "queue[row_time=4.0,pace=length]"
DROPS = "queue[max_lag=2,row_time=4.0,pace=length]"


def paced_spec(spec: Specs, lag: str, **settings: Any) -> LanguageSpec:
    given = {"capacity": 9, "prompts": 8, "completions": 2, "completion_tokens": 24, "learning_rate": 1e-3}
    return spec(**{**given, "steps": 8, "lag": lag, **settings})


def trained(simulation: Any) -> tuple[np.ndarray, list[dict[str, Any]]]:
    """(tokens of the longest row, lag) [n, 2] of the groups trained on once the pipeline is full, and metrics."""
    collect, found = simulation.collect, []

    def watch(phase: int) -> Any:
        collected = collect(phase)
        data, each = collected.data, simulation.spec.completions
        longest = data.mask.sum(1).view(-1, each).max(1).values
        found.append(np.stack([longest.numpy(), (phase - data.version[::each, 0]).numpy()], 1))
        return collected

    simulation.collect = watch
    said = [record.metrics for record in simulation]
    return np.concatenate(found[3:]), said


@pytest.mark.long
def test_long_rows_are_older_only_if_time_follows_length(spec: Specs) -> None:
    (paced, _), (drawn, _) = (trained(simulation_of(paced_spec(spec, lag))) for lag in (PACED, "queue[row_time=2.0]"))
    assert drawn[:, 1].std() > 0.5 and paced[:, 1].std() > 0.5, "all are of one age"
    assert np.corrcoef(paced.T)[0, 1] > 0.6
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.35  # 40 groups: 2.2 standard errors


@pytest.mark.long
def test_a_bound_drops_long_rows_and_the_ledger_counts_them(spec: Specs) -> None:
    simulation: Any = simulation_of(paced_spec(spec, DROPS))
    _, said = trained(simulation)
    last = said[-1]
    mean = {e: last[f"decisions/{e}"] / last[f"sequences/{e}"] for e in ("trained", "dropped", "generated")}
    assert last["sequences/dropped"] >= 8 and mean["trained"] < mean["generated"] < mean["dropped"]
    plan = simulation.lags.schedule
    assert len(plan.trained_in(7)) == 16 and (plan.phase[plan.finished == NEVER] == NEVER).all()


@pytest.mark.long
def test_phases_and_checkpoints_repeat_the_same_simulation(spec: Specs) -> None:
    whole: Any = simulation_of(paced_spec(spec, DROPS))
    said, plans = [], []
    for record in whole:
        said.append(record.metrics)
        plans.append(whole.lags.schedule)
    for phase, (before, after) in enumerate(pairwise(plans)):
        for t in range(phase + 1):
            assert before.group[before.trained_in(t)].tolist() == after.group[after.trained_in(t)].tolist()
    first: Any = simulation_of(whole.spec)
    for _ in range(3):
        first.advance()
    again: Any = simulation_of(whole.spec)
    again.load_state_dict(first.state_dict())
    assert [record.metrics for record in again] == said[3:]


def test_run_resumed_before_its_last_scores_has_the_pipeline_ledger(spec: Specs) -> None:
    whole: Any = simulation_of(paced_spec(spec, DROPS, steps=3))
    states: list[dict[str, Any]] = []
    whole.before_evaluation = lambda: states.append(whole.state_dict())
    records = list(whole)
    again: Any = simulation_of(whole.spec)
    again.load_state_dict(states[-1])
    assert [record.metrics for record in again] == [records[-1].metrics]
    assert again.lags.schedule.ledger == whole.lags.schedule.ledger


def test_groups_are_sampled_once_and_together(spec: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the schedule, the tokens and the lags of groups that are sampled one by one, and again to be trained on."""

    def run() -> tuple[list[list[Any]], list[int], int]:
        simulation: Any = simulation_of(paced_spec(spec, DROPS))
        decode, requests = simulation.generator.sampler.decode, []

        def watch(request: Any, *rest: Any) -> Any:
            requests.append(len(request.prompt))
            return decode(request, *rest)

        simulation.generator.sampler.decode = watch
        names = "rollout_length", "reward", "tv_data", "lag_mean", "sequences/dropped"
        found = [[record.metrics[name] for name in names] for record in simulation]
        return found, requests, len(simulation.generator.paced.lengths) * simulation.spec.completions

    found, requests, begun = run()
    monkeypatch.setattr(length_paced_groups.PacedGroups, "answer", lambda *_: None)
    monkeypatch.setattr(
        length_paced_groups.PacedGroups,
        "_sample",
        lambda self, groups, *rest, sample=length_paced_groups.PacedGroups._sample: sample(self, groups[:1], *rest),
    )
    wanted, requests_one_by_one, begun_one_by_one = run()
    assert found == wanted and begun == begun_one_by_one
    assert sum(requests_one_by_one) >= begun + 8 * 16 and max(requests_one_by_one[1:8]) == 2
    assert sum(requests) <= 1.5 * begun and len(requests) < 0.3 * len(requests_one_by_one)


def test_the_schedule_is_that_of_rows_with_these_lengths() -> None:
    """One slot for a group of two, a batch of one group: each begins when the one before is done, and the trainer, who
    needs one unit of time, takes it at once or when the last one is trained."""
    lengths = {0: [5, 10], 1: [2, 1], 2: [30, 3], 3: [10, 10], 4: [1, 1], 5: [1, 1], 6: [1, 1]}
    model = read_lag("queue[slots=0.5,row_time=2.0,pace=length]")
    assert isinstance(model, PipelineLag)
    asked: list[tuple[int, int]] = []

    def lengths_of(group: int, version: int) -> list[int]:
        asked.append((group, version))
        return lengths.get(group, [1, 1])

    plan = model.schedule_by_length(Demand(phases=4, groups=1, rows=2, length=40, seed=0), lengths_of)
    # 10 of 40 decisions take a quarter of two steps: group 0 is made at 0.5, 1 at 0.6, 2 at 2.1, 3 at 2.6; the trainer
    # takes 0 at 0.5, 1 at 1.5, 2 at 2.5 and 3 at 3.5; version 1 is there from 1.5 on, 2 from 2.5
    assert [plan.phase[2 * g] for g in range(4)] == [0, 1, 2, 3]
    assert asked[:4] == [(0, 0), (1, 0), (2, 0), (3, 1)] and [plan.oldest[2 * g] for g in range(4)] == [0, 0, 0, 1]
    assert plan.lengths[:8].tolist() == [5, 10, 2, 1, 30, 3, 10, 10]


@pytest.mark.parametrize(
    ("env", "lag", "words"),
    [
        ("bit-chain", PACED, "rows of bit-chain are all of one length; leave out pace=length"),
        ("Hopper-v5", PACED, "rows of Hopper-v5 are all of one length; leave out pace=length"),
        ("", "areal[pace=length]", "pace=length takes the length of a row when it begins"),
        ("", "queue[cv=0.2,pace=length]", "cv must be left out with pace=length, which says how long a row takes"),
        ("", "queue[row_time=4.0,pace=length]", "lags of up to . phases, and K=2 holds lags 0 to 1; give K=."),
    ],
)
def test_what_cannot_be_paced_is_refused(spec: Specs, env: str, lag: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        given = {"env": env, "algorithm": "ppo_clip", "capacity": 9, "lag": lag}
        found = find_env(env)[1].settings.from_dict(given) if env else paced_spec(spec, lag, capacity=2)
        find_env(found.env)[1].check(found)
        for _ in simulation_of(found) if "row_time" in lag else ():  # its longest lag shows when it comes up
            pass
