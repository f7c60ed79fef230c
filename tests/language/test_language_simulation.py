"""Whole runs on tokens: lag, forward lag, dynamic sampling, resuming, evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from language_fixtures import PROBLEMS, Specs
from places import GSM8K
from whole_runs import all_equal, assert_resumes, metrics_of, run_whole

from staleharness.base.streams import stream
from staleharness.errors import UserError
from staleharness.language import sampler, task
from staleharness.language import simulation as language_simulation
from staleharness.language.answer_grading import Grade, grade
from staleharness.language.decoder_interface import Request
from staleharness.language.prompt_formatting import pad_left
from staleharness.language.sampler import completion_texts
from staleharness.training.loop import simulation_of
from staleharness.training.policy_buffer import PolicyBuffer

pytestmark = pytest.mark.usefixtures("grades_by_length")


def test_the_same_spec_gives_the_same_bits(spec: Specs) -> None:
    (a, x), (b, y) = (run_whole(spec(capacity=3, steps=4)) for _ in range(2))
    assert a == b and all_equal(x, y)
    assert metrics_of(spec(capacity=3, steps=4, seed=1)) != a


def test_methods_share_their_problems_noise_and_lags(spec: Specs) -> None:
    first = [next(iter(simulation_of(spec(algorithm=name, capacity=3)))).metrics for name in ("ppo_clip", "vaco")]
    assert {m["reward"] for m in first} == {first[0]["reward"]}
    a, b = (metrics_of(spec(algorithm=name, capacity=3)) for name in ("ppo_clip", "vaco"))
    assert [m["lag_histogram"] for m in a][:2] == [m["lag_histogram"] for m in b][:2]


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(spec: Specs) -> None:
    assert_resumes(spec(capacity=3, steps=6, algorithm="ppo_kl", hyper={"adaptive": True}, evaluations=3), 3)


def test_a_resumed_run_is_cut_as_it_was_where_it_began(spec: Specs) -> None:
    asked = spec(capacity=3)
    simulation, resumed, earlier = (simulation_of(asked) for _ in range(3))
    policy: Any = simulation.policy
    policy.micro_batch, policy.decode_batch = 5, 7
    policy.keep_resident(2)
    state = simulation.state_dict()
    resumed.load_state_dict(state)
    found: Any = resumed.policy
    assert (found.micro_batch, found.decode_batch, found.resident.capacity) == (5, 7, 2)
    del state["batch_sizes"]  # as in a checkpoint of an earlier version
    earlier.load_state_dict(state)
    assert earlier.policy.micro_batch == 0


def test_a_run_knows_which_mechanism_cannot_act(spec: Specs) -> None:
    asked = spec(algorithm="decoupled_ppo", capacity=3, steps=4)
    (line,) = simulation_of(asked).warnings
    assert line.startswith("decoupled_ppo: its proximal policy is recomputed")
    assert simulation_of(asked).method["passes"] == "1 forward per phase"
    assert simulation_of(spec(algorithm="decoupled_ppo", capacity=3, steps=4, minibatches=2)).warnings == []


def test_lag_is_as_the_model_says(spec: Specs) -> None:
    for phase, m in enumerate(metrics_of(spec(capacity=3, steps=5, lag="fixed:2"))):
        assert m["lag_mean"] == m["lag_max"] == min(2, phase)
        assert m["versions_per_sequence"] == 1.0
    drawn = metrics_of(spec(capacity=4, steps=8, prompts=16))
    assert max(m["lag_max"] for m in drawn) == 3
    assert all(m["tv_data"] == 0.0 for m in metrics_of(spec(capacity=1)))
    assert drawn[-1]["tv_data"] > 0.0


def test_in_flight_updates_give_a_sequence_several_versions(spec: Specs) -> None:
    found = metrics_of(spec(capacity=4, steps=6, lag="inflight:3", prompts=8))
    assert found[0]["versions_per_sequence"] == 1.0  # there is one version yet
    assert max(m["versions_per_sequence"] for m in found) > 1.5
    assert all(m["lag_max"] <= 3 for m in found)
    for m in metrics_of(spec(capacity=4, steps=4, lag="inflight:10", prompts=8)):
        assert m["versions_per_sequence"] == 1.0  # no completion is longer


def test_n_counts_minibatches_per_generation_round(spec: Specs) -> None:
    one, four = (simulation_of(spec(minibatches=n, steps=8)) for n in (1, 4))
    assert [r.metrics["gradient_steps"] for r in one] == list(range(1, 9))
    rounds = [r.metrics for r in four]
    assert [m["gradient_steps"] for m in rounds] == [4, 8]
    assert [m["steps"] for m in rounds] == [4, 8]
    assert [m["lag_max"] for m in rounds] == [0, 0]  # K = 1: no backward lag
    assert one.generator.cursor == four.generator.cursor == 8 * 4
    with pytest.raises(UserError, match=r"STEPS=10 is not a whole number of generation rounds of 4 .* give 8 or 12"):
        spec(minibatches=4, steps=10)


def test_problems_come_without_replacement_epoch_by_epoch(spec: Specs) -> None:
    generator = simulation_of(spec()).generator
    count = len(generator.sampler.prompts.problems)
    drawn = [generator.sampler.problem(number) for number in range(2 * count)]
    assert sorted(drawn[:count]) == sorted(drawn[count:]) == list(range(count))
    assert drawn[:count] != drawn[count:]


def test_dynamic_sampling_keeps_groups_with_signal(spec: Specs) -> None:
    asked = spec(dynamic_sampling=True, prompts=6, completions=3, steps=6)
    simulation = simulation_of(asked)
    simulation.buffer.push(simulation.policy.snapshot(0, 0))
    made = simulation.generator.collect(simulation.buffer, 0)
    right = made.completions.outcome.view(6, 3).sum(1)
    assert ((right > 0) & (right < 3)).all()
    assert len(made.completions.group.unique()) == 6
    assert made.dropped_groups == simulation.generator.cursor - 6
    report = metrics_of(asked)
    assert all(m["groups_without_signal"] == 0.0 for m in report)
    assert sum(m["dropped_groups"] for m in report) > 0


def test_dynamic_sampling_gives_up_with_a_line(spec: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "grade", lambda *_: Grade(False, False))
    with pytest.raises(UserError, match="drew 80 groups and found 0 of 4 whose rewards differ"):
        next(iter(simulation_of(spec(dynamic_sampling=True))))


def test_long_prompts_are_refused_or_dropped_and_counted(spec: Specs, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(UserError, match=rf"of {PROBLEMS} train prompts are longer than prompt_tokens=16 .*drop"):
        simulation_of(spec(prompt_tokens=16))
    simulation = simulation_of(spec(prompt_tokens=16, long_prompts="drop"))
    kept, dropped = simulation.generator.sampler.prompts, simulation.test.dropped
    assert simulation.advance().metrics["dropped_problems"] == kept.dropped + dropped > 0
    assert f"left out {kept.dropped} train and {dropped} test problems" in caplog.text
    assert len(kept.problems) + kept.dropped == PROBLEMS
    assert 0 < max(map(len, kept.tokens)) <= 16


def test_evaluation_is_greedy_and_the_same_each_time(spec: Specs) -> None:
    records = [r for r in simulation_of(spec(evaluations=2, learning_rate=1e-9, evaluation_problems=9)) if r.scores]
    assert len(records) == 2
    first, last = (r.scores for r in records)
    assert first is not None
    assert last is not None
    assert first.lengths == last.lengths
    assert len(first.returns["deterministic"]) == 9
    assert first.counts.keys() == {"unparsed", "truncated", "complete_right"}
    assert records[-1].metrics["eval_truncated"] == last.counts["truncated"]
    assert records[-1].metrics["eval_complete_right"] == last.counts["complete_right"]


def test_right_answers_that_were_cut_are_not_complete(spec: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    """All answers count as right: those that are complete are those not cut."""
    monkeypatch.setattr(task, "grade", lambda *_: Grade(True, True))
    counts = []
    for length in (1, 4, 40):
        scores = simulation_of(spec(completion_tokens=length)).evaluate()
        count = len(scores.returns["deterministic"])
        assert scores.counts["complete_right"] == count - scores.counts["truncated"]
        counts.append(scores.counts["truncated"])
    assert counts[0] > counts[-1]
    monkeypatch.setattr(task, "grade", lambda *_: Grade(False, True))
    assert simulation_of(spec(completion_tokens=40)).evaluate().counts["complete_right"] == 0


def test_sampled_accuracy_is_the_share_of_right_samples(spec: Specs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample has noise of its own, whatever is decoded beside it, and the greedy score is what it was."""

    def grade(text: str, *_: str) -> Grade:
        return Grade(len(text) % 2 == 0, True)

    monkeypatch.setattr(task, "grade", grade)
    monkeypatch.setattr(sampler, "BATCH", 4)
    simulation = simulation_of(spec(evaluation_problems=5, evaluation_samples=3))
    found = simulation.evaluate()
    policy, length = simulation.policy, simulation.spec.completion_tokens
    shares, lengths = [], []
    buffer = PolicyBuffer(1)
    buffer.push(policy.snapshot(0, 0))
    for i, problem in enumerate(simulation.test.problems[:5]):
        right = 0
        for sample in range(3):
            noise = stream(language_simulation.SEED, "evaluation", i, sample).random(length, np.float32)
            prompt, mask = pad_left([simulation.test.tokens[i]], policy.pad, policy.device)
            versions = np.zeros((1, 1), dtype=np.int64)
            uniform = torch.from_numpy(noise)[None]
            asked = Request(prompt, mask, versions, length, uniform, length, simulation.sampler.stops)
            decoded = simulation.sampler.decoder.complete(asked, buffer)
            lengths.append(int(decoded.mask.sum()))
            text = completion_texts(policy, decoded)[0]
            right += grade(text, problem.answer).correct
        shares.append(right / 3)
    assert found.returns["sampled"] == pytest.approx(shares)
    assert found.lengths["sampled"] == lengths
    assert 0 < sum(shares) < 5
    greedy = simulation_of(spec(evaluation_problems=5)).evaluate()
    assert found.returns["deterministic"] == greedy.returns["deterministic"]
    assert found.counts == greedy.counts
    assert found.steps == greedy.steps + sum(lengths)


def test_a_run_without_samples_has_no_sampled_accuracy(spec: Specs) -> None:
    (without, *_), (given, *_) = (list(simulation_of(spec(evaluation_samples=n))) for n in (0, 1))
    assert given.metrics.keys() - without.metrics.keys() == {
        "eval_sampled",
        "untrained/sampled",
        "untrained/sampled_error",
    }
    with pytest.raises(UserError, match="evaluation_samples=-1 must not be negative"):
        spec(evaluation_samples=-1)


@pytest.mark.parametrize("lag", ["uniform", "inflight:4"])
def test_adapters_as_versions_train_and_act(spec: Specs, lag: str) -> None:
    asked = spec(versions="lora", lora_rank=4, capacity=3, steps=4, lag=lag)
    simulation = simulation_of(asked)
    frozen = {n: p.detach().clone() for n, p in simulation.policy.model.named_parameters() if "lora" not in n}
    found = [record.metrics for record in simulation]
    assert max(m["lag_max"] for m in found) == 2
    assert found[-1]["tv_data"] > 0.0 == found[0]["tv_data"]
    for name, p in simulation.policy.model.named_parameters():
        if name in frozen:
            assert torch.equal(p, frozen[name])
    assert set(simulation.buffer.newest.tensors) == set(simulation.policy.parameters)
    assert all("lora" in name for name in simulation.policy.parameters)


@pytest.mark.skipif(not GSM8K.is_dir(), reason="../shared/data/gsm8k is not here")
def test_gsm8k_with_a_model_from_a_folder(spec: Specs, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "grade", grade)
    asked = spec(env="gsm8k", data=str(GSM8K), prompt_tokens=2000, steps=1, completion_tokens=4, evaluation_problems=3)
    simulation = simulation_of(asked)
    assert len(simulation.generator.sampler.prompts.problems) == 7473
    assert len(simulation.test.problems) == 1319
    (record,) = list(simulation)
    assert record.scores is not None
    assert np.mean(record.scores.returns["deterministic"]) == 0.0
    with pytest.raises(UserError, match="train prompts are longer than prompt_tokens=64"):
        simulation_of(replace(asked, prompt_tokens=64))
