"""Phases that fill the policy buffer before a run's budget: on-policy, at the first rate, outside the steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from needs import require_extra
from torch import Tensor
from whole_runs import all_equal, assert_resumes, metrics_of, parameters

from staleharness import api
from staleharness.errors import UserError
from staleharness.lag import schedule_of
from staleharness.spec import RunSpec
from staleharness.training.loop import simulation_of

CONTROL = {
    "env": "Pendulum-v1",
    "steps": 256,
    "settings": {"num_envs": 4, "num_steps": 16, "epochs": 1, "minibatches": 2, "final_episodes": 1},
}
CHAIN = {"env": "bit-chain", "steps": 4, "settings": {"horizon": 4, "batch": 8}}
KINDS = {"control": CONTROL, "chain": CHAIN}


def spec_of(kind: str, fill: int, k: int = 1, lag: str = "oldest", steps: int = 0, **settings: Any) -> RunSpec:
    grid: dict[str, Any] = KINDS[kind]
    settings = {**grid["settings"], "fill_phases": fill, **settings}
    steps = steps or grid["steps"]
    plan = api.plan(env=grid["env"], algo="ppo_clip", k=k, seeds=1, lag=lag, steps=steps, settings=settings)
    return plan.runs[0].spec


def after_three_phases(spec: RunSpec) -> list[Tensor]:
    simulation = simulation_of(spec)
    for _ in range(3):
        simulation.advance()
    simulation.close()
    return parameters(simulation)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lag", ["oldest", "delay"])
@pytest.mark.long
def test_the_first_phase_of_the_budget_is_as_old_as_the_buffer(kind: str, lag: str) -> None:
    spec = spec_of(kind, fill=15, k=16, lag=lag)
    metrics = metrics_of(spec)
    assert [m["lags/assigned"] for m in metrics] == [0] * 15 + [15] * 4
    assert spec.phases == 19 and spec.budget_phases == 4


@pytest.mark.long
def test_tokens_are_as_old_as_the_buffer_from_the_first_step_on() -> None:
    require_extra("llm")
    settings = {"fill_phases": 15, "prompts": 1, "completions": 2, "completion_tokens": 4, "evaluation_problems": 2}
    spec = api.plan(env="word-problems", algo="ppo_clip", k=16, seeds=1, lag="oldest", steps=2, settings=settings)
    metrics = metrics_of(spec.runs[0].spec)
    assert [m["lags/assigned"] for m in metrics] == [0] * 15 + [15] * 2
    assert [m["steps"] for m in metrics] == [0] * 15 + [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_rate_steps_and_evaluations_are_those_of_the_budget(kind: str) -> None:
    plain, filled = (metrics_of(spec_of(kind, fill, evaluations=2)) for fill in (0, 3))
    for column in ("steps", "learning_rate"):
        assert [m[column] for m in filled[3:]] == [m[column] for m in plain]
        assert {m[column] for m in filled[:3]} == {0 if column == "steps" else plain[0]["learning_rate"]}
    evaluated = [[i for i, m in enumerate(metrics) if m["eval_sampled"] is not None] for metrics in (plain, filled)]
    assert evaluated == [[1, 3], [4, 6]]


@pytest.mark.parametrize("anneal", [False, True])
def test_a_rate_of_their_own_ends_with_them(anneal: bool) -> None:
    settings = {"anneal_learning_rate": anneal, "learning_rate": 0.08}
    metrics = metrics_of(spec_of("chain", 3, fill_learning_rate=0.01, **settings))
    budget = [0.08, 0.06, 0.04, 0.02] if anneal else [0.08] * 4
    assert [m["learning_rate"] for m in metrics] == pytest.approx([0.01] * 3 + budget)


def test_runs_of_every_rate_begin_with_the_same_policy() -> None:
    low, high = (
        after_three_phases(spec_of("chain", 3, 4, fill_learning_rate=0.03, learning_rate=rate)) for rate in (0.01, 0.09)
    )
    assert all_equal(low, high)


def test_without_lag_they_are_a_longer_run_at_one_rate() -> None:
    """K = 1, no annealing: three phases more, bit for bit."""
    long = metrics_of(spec_of("chain", 0, steps=7))
    filled = metrics_of(spec_of("chain", 3))
    columns = ("reward", "grad_norm", "gradient_steps")
    assert [[m[c] for c in columns] for m in filled] == [[m[c] for c in columns] for m in long]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lag", ["uniform", "oldest", "delay"])
def test_every_capacity_begins_with_the_same_policy(kind: str, lag: str) -> None:
    if (kind, lag) == ("control", "delay"):
        pytest.skip("each actor of a schedule has environments of its own")
    assert all_equal(*(after_three_phases(spec_of(kind, 3, k, "uniform" if k == 1 else lag)) for k in (1, 4)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lag", ["oldest", "delay"])
@pytest.mark.long
def test_a_run_resumes_bit_for_bit_before_its_budget(kind: str, lag: str) -> None:
    assert_resumes(spec_of(kind, 3, 4, lag), 2)


def test_a_pipeline_keeps_its_rows_after_the_first_phases() -> None:
    """Rows of the first phases are their own version's; the later ones have the versions that the pipeline gave."""
    specs = (spec_of("control", fill, 16, "areal[eta=2]", steps=64 * (7 - fill)) for fill in (0, 3))
    plain, filled = map(schedule_of, specs)
    assert plain is not None and filled is not None
    for phase in range(7):
        before, after = plain.trained_in(phase), filled.trained_in(phase)
        assert plain.place[before].tolist() == filled.place[after].tolist()
        versions = np.full((4, 16), phase) if phase < 3 else plain.along(before, 16)[0]
        assert np.array_equal(filled.along(after, 16)[0], versions)
    assert sorted(filled.actor[filled.phase == 2]) == [0, 1, 2, 3]
    early = np.isin(filled.phase, (0, 1, 2))
    assert filled.finished is not None and (filled.finished[early] == filled.phase[early]).all()


@pytest.mark.parametrize(
    "change, words",
    [
        ({"fill_phases": -1}, r"fill_phases=-1 must lie in \[0"),
        ({"fill_learning_rate": -1e-4}, r"fill_learning_rate=-0.0001 must not be negative"),
        ({"fill": 0, "fill_learning_rate": 1e-4}, r"fill_learning_rate=0.0001 has no effect with fill_phases=0"),
        ({"lag": "async"}, "fill_phases=3 is for lag that is drawn or planned"),
    ],
)
def test_what_cannot_be_filled_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        spec_of("control", **{"fill": 3, "k": 4, **{"fill" if k == "fill_phases" else k: v for k, v in change.items()}})
