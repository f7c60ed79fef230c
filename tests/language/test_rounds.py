"""A generation round and an evaluation, put together again from their streams, versions and problems."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from assignments import assignment_of
from language_fixtures import Specs

from staleharness.base.streams import stream
from staleharness.language import task
from staleharness.language.answer_grading import Grade
from staleharness.language.decoder_interface import Request
from staleharness.language.prompt_formatting import pad_left
from staleharness.language.sampler import completion_texts, teacher_force
from staleharness.training.loop import simulation_of
from staleharness.training.policy_buffer import PolicyBuffer

PROMPTS, EACH, LENGTH = 4, 3, 10


@pytest.fixture
def grades_seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """(text, answer) of every completion that is graded; right is one of even length, parsed one that has any."""
    seen: list[tuple[str, str]] = []

    def grade(text: str, answer: str, extractor: str) -> Grade:
        seen.append((text, answer))
        return Grade(len(text) % 2 == 0, len(text) > 3)

    monkeypatch.setattr(task, "grade", grade)
    return seen


@pytest.mark.parametrize(
    ("lag", "kv_cache"), [("uniform", "recompute"), ("inflight:4", "recompute"), ("inflight:4", "keep")]
)
def test_a_round_is_its_streams_its_versions_and_its_problems(
    spec: Specs, grades_seen: list[tuple[str, str]], lag: str, kv_cache: str
) -> None:
    """One number per (phase, prompt, completion, token); one version per prompt, or per segment of it."""
    asked = spec(capacity=3, steps=6, lag=lag, kv_cache=kv_cache, minibatches=2, seed=2)
    simulation = simulation_of(asked)
    policy, prompts, groups = simulation.policy, simulation.generator.sampler.prompts, 2 * PROMPTS
    metrics = [simulation.advance().metrics for _ in range(2)]
    simulation.buffer.push(policy.snapshot(2, simulation.gradient_steps))
    grades_seen.clear()
    made = simulation.generator.collect(simulation.buffer, 2).completions

    chosen = stream(2, "env", 0).permutation(len(prompts.problems))[2 * groups : 3 * groups]
    drawn = assignment_of(lag, 3, 2, groups, 0, seed=2, length=LENGTH)
    each = drawn.every or LENGTH
    versions = np.repeat(drawn.versions, EACH, axis=0)
    noise = np.stack(
        [stream(2, "action", 2, p, i).random(LENGTH, np.float32) for p in range(groups) for i in range(EACH)]
    )
    prompt, mask = pad_left([prompts.tokens[i] for i in chosen for _ in range(EACH)], policy.pad, policy.device)
    request = Request(prompt, mask, versions, each, torch.from_numpy(noise), LENGTH, simulation.sampler.stops)
    wanted = simulation.sampler.decoder.decode(request, simulation.buffer)
    assert torch.equal(made.prompt, prompt) and torch.equal(made.prompt_mask, mask)
    assert torch.equal(made.token, wanted.token) and torch.equal(made.mask, wanted.mask)
    assert torch.equal(made.truncated, ~wanted.ended)
    of_token = versions[:, np.arange(made.token.shape[1]) // each]
    assert torch.equal(made.version, torch.from_numpy(of_token))
    assert torch.equal(made.gradient_step, made.version * 2)  # two optimiser steps a phase
    assert made.group.tolist() == np.repeat(np.arange(groups), EACH).tolist()
    scored = teacher_force(simulation.sampler.decoder, request, wanted, simulation.buffer).logp
    acted = wanted.logp if kv_cache == "keep" else scored
    torch.testing.assert_close(made.behaviour_logp, acted, atol=1e-5, rtol=1e-5)
    texts = completion_texts(policy, wanted)
    answers = [prompts.problems[i].answer for i in chosen for _ in range(EACH)]
    assert grades_seen == list(zip(texts, answers, strict=True))
    assert made.outcome.tolist() == [float(len(text) % 2 == 0) for text in texts]
    assert made.unparsed.tolist() == [len(text) <= 3 for text in texts]
    assert len(set(drawn.starts.tolist())) > 1 and len(set(answers)) > 1 and len(set(texts)) > groups
    assert [m["steps"] for m in metrics] == [2, 4]


def test_further_groups_of_a_phase_have_their_own_versions(spec: Specs, grades_seen: list[tuple[str, str]]) -> None:
    """Dynamic sampling draws again for what it turned away: slots go on, and so does their stream."""
    simulation = simulation_of(
        spec(capacity=3, steps=3, prompts=8, completions=2, dynamic_sampling=True, seed=1, lag="geometric:0.9")
    )
    for _ in range(2):
        simulation.advance()
    simulation.buffer.push(simulation.policy.snapshot(2, simulation.gradient_steps))
    draw, drawn = simulation.lags.draw, {}

    def watch(phase: int, groups: int, first: int, **asked: Any) -> Any:
        starts = assignment_of("geometric:0.9", 3, phase, groups, first, seed=1, length=LENGTH).starts
        drawn.update(zip(range(first, first + groups), starts.tolist(), strict=True))
        sizes.append(groups)
        return draw(phase, groups, first, **asked)

    sizes: list[int] = []
    simulation.lags.draw = watch
    made = simulation.generator.collect(simulation.buffer, 2).completions
    assert len(sizes) > 1 and sorted(drawn) == list(range(sum(sizes)))
    assert made.version[:, 0].tolist() == [drawn[slot] for slot in made.group.tolist()]
    # padding lies on the left of a prompt, and the prompts of all parts end together
    assert bool((made.prompt_mask.diff(dim=1) >= 0).all()) and bool((made.prompt_mask[:, -1] == 1).all())
    assert bool((made.prompt_mask[:, 0] == 0).any())


def test_a_lag_of_phases_is_so_many_optimiser_steps(spec: Specs) -> None:
    for phase, record in enumerate(simulation_of(spec(capacity=3, steps=8, lag="fixed:2", minibatches=2))):
        assert record.metrics["gradient_lag_mean"] == 2 * min(phase, 2)


def test_a_resumed_generator_continues_in_its_epoch(spec: Specs) -> None:
    first, resumed = (simulation_of(spec()) for _ in range(2))
    first.generator.cursor = len(first.sampler.prompts.problems) + 5
    resumed.generator.load_state_dict(first.generator.state_dict())
    prompts = []
    for simulation in (first, resumed):
        simulation.buffer.push(simulation.policy.snapshot(0, 0))
        prompts.append(simulation.generator.collect(simulation.buffer, 0).completions.prompt)
    assert torch.equal(*prompts)


def test_evaluation_is_greedy_on_the_first_test_problems(spec: Specs, grades_seen: list[tuple[str, str]]) -> None:
    simulation: Any = simulation_of(spec(evaluations=2, steps=4, evaluation_problems=5))
    scored = []
    for record in simulation:
        if record.scores is None:
            continue
        scored.append(record.metrics["phase"])
        policy, problems = simulation.policy, simulation.test
        prompt, mask = pad_left(problems.tokens[:5], policy.pad, policy.device)
        newest = PolicyBuffer(1)
        newest.push(policy.snapshot(99, 0))
        request = Request(prompt, mask, np.full((5, 1), 99), LENGTH, None, LENGTH, simulation.sampler.stops)
        greedy = simulation.sampler.decoder.decode(request, newest)
        texts = completion_texts(policy, greedy)
        assert grades_seen[-5:] == [(t, p.answer) for t, p in zip(texts, problems.problems[:5], strict=True)]
        assert record.scores.returns["deterministic"] == [float(len(t) % 2 == 0) for t in texts]
        assert record.scores.lengths["deterministic"] == greedy.mask.sum(1).tolist()
        assert record.scores.steps == int(greedy.mask.sum())
        unparsed = sum(len(t) <= 3 for t in texts)
        right = torch.tensor([len(t) % 2 == 0 for t in texts])
        counts = {"unparsed": unparsed, "truncated": int((~greedy.ended).sum())}
        assert record.scores.counts == counts | {"complete_right": int((right & greedy.ended).sum())}
    assert scored == [1, 3]
