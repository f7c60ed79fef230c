"""Every decision of a run on control is accounted for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from control_runs import ENVS, EPOCHS, PARTS, PHASES, SMALL, STEPS, N, run
from whole_runs import assert_resumes, entries
from witness import MethodCalls

from staleharness.training.loop import simulation_of
from staleharness.training.version_assignment import Lags


@pytest.mark.parametrize("assignment", ["phase", "episode"])
def test_what_past_policies_do_is_all_trained_on(witness: MethodCalls, assignment: str) -> None:
    for phase, m in enumerate(run(witness, assignment=assignment), start=1):
        none = dict.fromkeys(("dropped", "masked", "queued", "reused"), 0)
        assert entries(m, "sequences") == {"generated": phase * ENVS, "trained": phase * ENVS, **none}
        assert entries(m, "decisions") == {"generated": phase * N, "trained": phase * N, **none}


@pytest.mark.parametrize("lag", ["uniform", "fixed:2", "geometric:0.5"])
def test_replay_counts_rows_that_return_wait_or_leave_unseen(witness: MethodCalls, lag: str) -> None:
    """Against sets of (phase, slot), from the versions that the lag model draws."""
    lags = Lags(replace(SMALL, lag=lag))
    seen: set[tuple[int, int]] = set()
    reused = 0
    for phase, m in enumerate(run(witness, mechanism="replay", lag=lag)):
        drawn = {(int(v), slot) for slot, v in enumerate(lags.draw(phase, ENVS).starts)}
        reused += len(drawn & seen)
        seen |= drawn
        made = {(p, slot) for p in range(phase + 1) for slot in range(ENVS)}
        held = {(p, slot) for p, slot in made if p > phase - SMALL.capacity}
        rows = {
            "generated": len(made),
            "trained": len(seen),
            "dropped": len(made - seen - held),
            "masked": 0,
            "queued": len(held - seen),
            "reused": reused,
        }
        assert entries(m, "sequences") == rows
        assert entries(m, "decisions") == {key: n * STEPS for key, n in rows.items()}
        assert m["sequences/dropped"] == m["unseen_rows"]


def test_lags_at_the_ends_of_a_phase_are_apart_by_its_forward_lag(witness: MethodCalls) -> None:
    """And with one lag for all, in every way of counting it."""
    for phase, m in enumerate(run(witness, lag="fixed:1")):
        lag, steps = min(1, phase), min(1, phase) * EPOCHS * PARTS
        kinds = "assigned realised trained start oldest newest in_queue first last".split()
        assert {m[f"lags/{kind}"] for kind in kinds} == {lag} and m["lags/in_flight"] == 0
        assert m["gradient_lags/first"] == m["gradient_lags/trained"] == m["gradient_lag_mean"] == steps
        assert m["gradient_lags/last"] == steps + EPOCHS * PARTS - 1
        assert m["lags/at_cap"] == lag  # the model has no larger one, whatever the buffer holds


def test_realised_lag_exceeds_assigned_lag_inside_episodes(witness: MethodCalls) -> None:
    """Rows of single episodes, for environments are reset at the beginning of a phase: nothing is kept then."""
    settings = {"assignment": "episode", "num_envs": 40, "steps": PHASES * 40 * STEPS}
    for m in run(witness, lag="uniform", **settings):
        assert m["lags/newest"] <= m["lags/trained"] <= m["lags/oldest"]
        assert m["lags/in_flight"] == pytest.approx(m["lags/oldest"] - m["lags/newest"])
    assert m["lags/oldest"] > m["lags/start"] > m["lags/newest"] > 0


def test_the_share_at_the_cap_is_that_of_the_oldest_version(witness: MethodCalls) -> None:
    for m in run(witness, lag="uniform", num_envs=40, num_steps=6, steps=PHASES * 240):
        counts = np.array([*m["lag_histogram"], 0, 0, 0])
        assert m["lags/at_cap"] == counts[2] / 240 and counts[3:].sum() == 0


def test_a_minibatch_that_is_lost_ends_the_run(witness: MethodCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = simulation_of(SMALL)
    whole = simulation.learner.minibatches
    lossy: Any = lambda epoch: iter(list(whole(epoch))[1:])  # noqa: E731
    monkeypatch.setattr(simulation.learner, "minibatches", lossy)
    with pytest.raises(RuntimeError, match=f"trained on {N // 2} decisions in its first epoch, and {N} were there"):
        simulation.advance()


def test_a_row_that_is_lost_ends_the_run(witness: MethodCalls, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = simulation_of(replace(SMALL, mechanism="replay"))
    simulation.advance()
    monkeypatch.setattr(type(simulation.rollouts), "waiting_rows", 0)
    with pytest.raises(RuntimeError, match="ledger of sequences does not close after phase 1"):
        simulation.advance()


def test_accounts_go_on_where_a_run_was_interrupted(witness: MethodCalls) -> None:
    assert_resumes(replace(SMALL, mechanism="replay"), 2)


def test_the_untrained_policy_is_scored_once(witness: MethodCalls) -> None:
    first, *others = run(witness, {"mute": True}, final_episodes=1, value_coef=0.0)
    assert not any(key.startswith("untrained/") for m in others for key in m)
    assert first["untrained/sampled"] > 0 and first["untrained/sampled_error"] == 0.0  # of one episode
    several = run(witness, steps=N, evaluation_episodes=3)[0]
    assert several["untrained/sampled_error"] > 0


def test_rows_of_a_pipeline_that_are_turned_away_are_dropped(witness: MethodCalls) -> None:
    """Rows count from the batch before which they were finished, those still under way do not; what left the queue
    untrained was dropped."""
    model = "queue[max_lag=1,on_stale=drop_group,slots=4]"
    simulation = simulation_of(replace(SMALL, lag=model, num_envs=8, steps=PHASES * 8 * STEPS))
    schedule = simulation.lags.schedule
    for phase, record in enumerate(simulation):
        rows = dict.fromkeys(("generated", "trained", "dropped", "masked", "queued", "reused"), 0)
        for due, finished, left in zip(schedule.phase, schedule.finished, schedule.left, strict=True):
            if not 0 <= finished <= phase:
                continue
            rows["generated"] += 1
            gone = 0 <= left <= phase
            rows["queued" if not gone else "trained" if due >= 0 else "dropped"] += 1
        assert entries(record.metrics, "sequences") == rows
        assert record.metrics["lags/assigned"] == record.metrics["lags/start"]
    assert rows["dropped"] > 0
    assert simulation.lags.cap == 1 == record.metrics["lag_max"]
    simulation.close()


def test_masked_decisions_are_handed_over_and_not_trained_on(witness: MethodCalls) -> None:
    model = "queue[max_lag=2,on_stale=mask_tokens,slots=1.5,in_flight=true]"
    simulation = simulation_of(replace(SMALL, lag=model, capacity=6, num_envs=8, steps=PHASES * 8 * STEPS))
    schedule, masked = simulation.lags.schedule, 0
    for phase, record in enumerate(simulation):
        _, kept = schedule.along(schedule.trained_in(phase), STEPS)
        masked += int((~kept).sum())
        assert record.metrics["decisions/masked"] == masked
        assert record.metrics["decisions/trained"] == (phase + 1) * 8 * STEPS - masked
    assert masked > 0
    simulation.close()


@pytest.mark.parametrize("early", [False, True])
def test_lag_mean_counts_decisions_that_an_early_end_leaves_out(witness: MethodCalls, early: bool) -> None:
    """ESPO may end its first epoch early: the cause of every published phase in which the two columns differ."""
    metrics = run(witness, {"delta": 0.1 if early else 1e9}, algorithm="espo", minibatches=6)
    assert all(m["lag_mean"] == pytest.approx(m["lags/realised"], abs=1e-6) for m in metrics)
    for mean, of_trained in (("lag_mean", "lags/trained"), ("gradient_lag_mean", "gradient_lags/trained")):
        same = [m[mean] == pytest.approx(m[of_trained], abs=1e-5) for m in metrics]
        assert all(same) != early
    assert (metrics[-1]["decisions/masked"] > 0) == early


@pytest.mark.parametrize(("lag", "delta"), [("uniform", 0.05), ("fixed:1", 0.2)])
def test_replay_counts_decisions_once_where_a_method_stops_early(lag: str, delta: float) -> None:
    """Against sets of (phase, slot, decision), from the minibatches that were stepped on in first epochs."""
    spec = replace(SMALL, algorithm="espo", hyper={"delta": delta}, mechanism="replay", lag=lag, minibatches=6)
    simulation = simulation_of(replace(spec, learning_rate=0.02, steps=8 * N))
    learner, taken = simulation.learner, list[int]()
    step = learner.step

    def spy(minibatch: Any, rate: float) -> Any:
        answer = step(minibatch, rate)
        if learner.stop == "no" and learner.progress.epoch == 0:
            taken.extend(minibatch.decision.flatten().tolist())
        return answer

    learner.step = spy  # type: ignore[method-assign]
    handed, trained, reused, earlier = set[Any](), set[Any](), 0, (0, 0)
    for phase, record in enumerate(simulation):
        rows = sorted((int(v), slot) for slot, v in enumerate(simulation.lags.draw(phase, ENVS).starts))
        handed |= {(*row, t) for row in rows for t in range(STEPS)}
        now = {(*rows[i // STEPS], i % STEPS) for i in taken}
        taken.clear()
        reused, trained = reused + len(now & trained), trained | now
        m = entries(record.metrics, "decisions")
        assert (m["trained"], m["masked"], m["reused"]) == (len(trained), len(handed - trained), reused)
        of_rows = [len({key[:2] for key in keys}) for keys in (trained, handed)]
        m = entries(record.metrics, "sequences")
        assert (m["trained"], m["masked"]) == (of_rows[0], of_rows[1] - of_rows[0])
        assert earlier <= (len(trained), reused)
        earlier = len(trained), reused
    assert trained < handed and reused > 0
    simulation.close()
