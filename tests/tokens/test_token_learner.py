"""The token learner against a literal reading of GRPO, row by row, and against itself in pieces."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rounds import EACH, GROUPS, PHASE, WIDTH, Policies, close, gradients, learner, literal_gradients, round_of
from torch import Tensor

from staleharness import objectives
from staleharness.algorithm import ALGORITHMS
from staleharness.base.streams import stream
from staleharness.batch import Completions
from staleharness.tokens.minibatch_gradient import Minibatch, group_relative_advantage
from staleharness.tokens.policy_interface import score_completions
from staleharness.training.method_descriptions import extra_passes

SERVED = sorted(name for name in ALGORITHMS if "closed_form" not in ALGORITHMS[name].needs)


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"])
def test_the_gradient_is_grpos_as_printed(policy: Policies, aggregation: str) -> None:
    found = gradients(policy, aggregation=aggregation)
    fresh = policy(prompts=GROUPS, completions=EACH)
    wanted = literal_gradients(fresh, round_of(fresh), aggregation, 0.2)
    assert close(found, wanted)
    assert max(float(g.abs().max()) for g in wanted) > 1e-3


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"aggregation": "seq-mean-token-mean"},
        {"aggregation": "seq-mean-token-sum-norm", "baseline": "dr_grpo"},
        {"algorithm": "vaco", "hyper": {"delta": 0.05}},
        {"algorithm": "impala"},
        {"algorithm": "decoupled_ppo"},
        {"step_size": "ess", "entropy_coef": 0.1},
        {"mask_truncated": True, "normalise_advantage": True},
        {"versions": "lora"},
        {"gradient_checkpointing": True},
    ],
)
@pytest.mark.long
def test_micro_batching_changes_nothing(policy: Policies, settings: dict[str, Any]) -> None:
    whole, parts, reports = [], [], []
    for size, kept in ((0, whole), (1, parts), (5, parts)):
        made = learner(policy, micro_batch=size, learning_rate=1e-3, adam_epsilon=1e-2, **settings)
        report, _ = made.train(round_of(made.policy), PHASE)
        kept.append([p.detach().clone() for p in made.parameters])
        reports.append(report)
    for other in parts:
        assert close(whole[0], other, 1e-6)
    for key in ("policy_loss", "clipped", "tv", "ess_sequence", "entropy", "grad_norm", "step_scale"):
        assert reports[1][key] == pytest.approx(reports[0][key], abs=1e-5, rel=1e-4)
    fresh = learner(policy, **settings)
    assert not close(whole[0], [p.detach() for p in fresh.parameters], 1e-6)  # it did learn something


def test_checkpointing_activations_changes_no_gradient(policy: Policies) -> None:
    assert close(gradients(policy), gradients(policy, gradient_checkpointing=True), 1e-6)


@pytest.mark.parametrize("name", SERVED)
def test_every_method_takes_a_step_on_tokens(policy: Policies, name: str) -> None:
    made = learner(policy, algorithm=name)
    before = [p.detach().clone() for p in made.parameters]
    report, seconds = made.train(round_of(made.policy, drift=0.0), PHASE)  # on-policy nothing is rejected
    assert report["gradient_steps"] == 1
    assert not close(before, [p.detach() for p in made.parameters], 1e-6)
    assert set(seconds) == {"proximal", "loss", "train"}


@pytest.mark.parametrize("name", SERVED)
@pytest.mark.long
def test_a_method_costs_the_passes_that_it_is_said_to_cost(policy: Policies, name: str) -> None:
    """Counted, with two gradient steps in the phase, against PPO-clip, which needs nothing more than all."""
    steps = 2
    made = learner(policy, algorithm=name, minibatches=steps, steps=steps)
    calls: list[int] = []
    score = made.policy.score

    def count_calls(prompt: Tensor, *rest: Any) -> Any:
        calls.append(len(prompt))
        return score(prompt, *rest)

    made.policy.score = count_calls  # type: ignore[method-assign]
    made.train(round_of(made.policy), PHASE)
    said = extra_passes(made.algorithm)
    own = GROUPS * EACH if said.by_row else steps
    counts = (own, said.per_phase, said.per_step * steps)
    assert len(calls) - 1 == sum(counts)  # one is of `round_of`
    assert said == extra_passes(made.algorithm, replace(made.spec))


@pytest.mark.parametrize(("realign", "passes"), [("phase", 1), ("epoch", 3), ("step", 0)])
def test_each_realignment_costs_one_pass_over_the_phase(policy: Policies, realign: str, passes: int) -> None:
    """At every step they are taken under the pass that the gradient goes through."""
    hyper = {"advantage": "vtrace", "realign_every": realign}
    made = learner(policy, algorithm="vaco", hyper=hyper, epochs=3, steps=3)
    assert extra_passes(made.algorithm, made.spec).per_phase == passes
    data, calls, score = round_of(made.policy), [], made.policy.score

    def count_calls(*given: Any) -> Any:
        calls.append(given)
        return score(*given)

    made.policy.score = count_calls  # type: ignore[method-assign]
    made.train(data, PHASE)
    assert len(calls) == passes + 3  # and one for each gradient step


def test_groups_are_shuffled_from_the_second_epoch_on(policy: Policies) -> None:
    made = learner(policy, epochs=2, steps=2)
    data = round_of(made.policy)
    made.begin(data, PHASE)
    shuffled = stream(made.spec.seed, "minibatch", PHASE, 1).permutation(GROUPS)
    for epoch, order in enumerate((np.arange(GROUPS), shuffled)):
        (part,) = made.minibatches(epoch)
        assert part.data.group.tolist() == np.repeat(order, EACH).tolist()
    assert shuffled.tolist() != list(range(GROUPS))


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
def test_completions_that_were_cut_count_as_if_they_had_no_tokens(policy: Policies, aggregation: str) -> None:
    data = round_of(policy())
    empty = replace(data, mask=data.mask * (1.0 - data.truncated.float()[:, None]))
    cut = gradients(policy, data, mask_truncated=True, aggregation=aggregation)
    assert close(cut, gradients(policy, empty, aggregation=aggregation), 1e-6)
    assert not close(cut, gradients(policy, data, aggregation=aggregation), 1e-6)


def test_weights_decay_by_the_rate_where_nothing_pulls(policy: Policies) -> None:
    made = learner(policy, weight_decay=0.5, learning_rate=0.1, baseline="dr_grpo")
    before = [p.detach().clone() for p in made.parameters]
    made.train(replace(round_of(made.policy), outcome=torch.ones(GROUPS * EACH)), PHASE)
    for p, kept in zip(made.parameters, before, strict=True):
        torch.testing.assert_close(p.detach(), (1.0 - 0.1 * 0.5) * kept)


def test_completions_are_scored_through_the_experts_they_have(policy: Policies) -> None:
    data = round_of(policy())
    stand_in: Any = SimpleNamespace(score=lambda *given, **more: more)
    assert score_completions(stand_in, data) == {}
    experts = torch.zeros(GROUPS * EACH, data.prompt.shape[1] + WIDTH, 1, 2)
    assert score_completions(stand_in, replace(data, experts=experts)) == {"experts": experts}


def test_rows_of_a_minibatch_are_the_rows_of_all_that_is_in_it(policy: Policies) -> None:
    data = round_of(policy())
    numbered = torch.arange(1.0, GROUPS * EACH + 1)[:, None].expand(-1, WIDTH)
    batch = Minibatch(
        data=data,
        mask=numbered,
        weights=2 * numbered,
        proximal_logp=-3 * numbered,
        aligned_logp=-4 * numbered,
        reference_logp=-5 * numbered,
        lag=6 * numbered,
        gradient_lag=7 * numbered,
        state={"a": 1.0},
    )
    index = torch.tensor([5, 2])
    some = batch.rows(index)
    for name in ("mask", "weights", "proximal_logp", "aligned_logp", "reference_logp", "lag", "gradient_lag"):
        assert torch.equal(getattr(some, name), getattr(batch, name)[index]), name
    assert torch.equal(some.data.token, data.token[index])
    d = some.decisions(-some.mask, 0.5 * some.mask)
    wanted = {
        "target_logp": -some.mask,
        "advantage": 0.5 * some.mask,
        "mask": some.mask,
        "lag": some.lag,
        "gradient_lag": some.gradient_lag,
        "proximal_logp": some.proximal_logp,
        "reference_logp": some.reference_logp,
        "behaviour_logp": data.behaviour_logp[index],
        "group": data.group[index],
        "outcome": data.outcome[index],
    }
    assert all(torch.equal(getattr(d, name), value) for name, value in wanted.items())
    assert d.state == {"a": 1.0}


def test_truncated_completions_are_masked_where_the_run_asks_for_it(policy: Policies) -> None:
    made = learner(policy)
    data = round_of(made.policy)
    other = data.token.clone()
    cut = data.truncated[:, None] & (data.mask > 0)
    other[cut] = 4  # other tokens in completions that were cut: no trace of them may be left
    changed = Completions(**{**vars(data), "token": other})
    assert close(gradients(policy, data, mask_truncated=True), gradients(policy, changed, mask_truncated=True), 1e-7)
    assert not close(gradients(policy, data), gradients(policy, changed), 1e-7)


def test_forward_lag_is_n_minibatches_trained_one_after_the_other(policy: Policies) -> None:
    made = learner(policy, minibatches=2, steps=4, learning_rate=1e-3)
    data = round_of(made.policy, drift=0.0)
    report, _ = made.train(data, PHASE)
    apart = learner(policy, minibatches=2, steps=4, learning_rate=1e-3)
    apart.begin(data, PHASE)
    for part in (slice(0, 6), slice(6, 12)):
        apart.step(apart.minibatch(data.rows(torch.arange(12)[part]), data.mask[part]), 1e-3)
    assert report["gradient_steps"] == 2
    assert close([p.detach() for p in made.parameters], [p.detach() for p in apart.parameters], 1e-7)
    assert report["tv_data"] == 0.0 < report["tv"]  # the second minibatch meets a policy that has moved


def test_token_v_trace_weighs_a_reward_by_later_truncated_ratios(policy: Policies) -> None:
    made = learner(policy, algorithm="impala", baseline="dr_grpo")
    data = round_of(made.policy)
    with torch.no_grad():
        now = made.policy.score(data.prompt, data.prompt_mask, data.token, data.mask).logp
    made.begin(data, PHASE)
    batch = made.minibatch(data, data.mask)
    found = group_relative_advantage(made.spec, made.algorithm, batch, now)
    for row in range(len(data.token)):
        count = int(data.mask[row].sum())
        relative = float(data.outcome[row] - data.outcome[data.group == data.group[row]].mean())
        ratio = (now - data.behaviour_logp)[row, :count].exp().clamp(max=1.0)
        for t in range(count):
            assert float(found[row, t]) == pytest.approx(relative * float(ratio[t + 1 :].prod()), abs=1e-5)
        assert not found[row, count:].any()


def test_group_baselines_by_hand() -> None:
    outcome, group = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0]), torch.tensor([0, 0, 0, 4, 4])

    def advantage(how: str) -> list[float]:
        baseline, scale = objectives.group_baseline(outcome, group, how)
        return ((outcome - baseline) / scale).tolist()

    std = np.std([1, 0, 0], ddof=1)
    assert advantage("grpo") == pytest.approx([2 / 3 / std, -1 / 3 / std, -1 / 3 / std, 0, 0], abs=1e-4)
    assert advantage("dr_grpo") == pytest.approx([2 / 3, -1 / 3, -1 / 3, 0, 0])
    assert advantage("rloo") == pytest.approx([1.0, -0.5, -0.5, 0, 0])  # G/(G - 1) times Dr. GRPO's
    assert advantage("none") == pytest.approx([1, 0, 0, 1, 1])


@pytest.mark.parametrize("how", ["grpo", "dr_grpo", "rloo"])
def test_equal_rewards_have_no_gradient_despite_rounding(how: str) -> None:
    outcome = torch.tensor([0.1] * 7 + [0.1, 0.7])
    group = torch.tensor([0] * 7 + [7] * 2)
    assert float(outcome[:7].sum() / 7) != float(outcome[0]), "or there is nothing to see"
    baseline, scale = objectives.group_baseline(outcome, group, how)
    assert torch.equal(baseline[:7], outcome[:7]) and torch.equal(scale[:7], torch.ones(7))
    assert ((outcome - baseline)[7:].abs() > 0.2).all()


@pytest.mark.parametrize("baseline", ["grpo", "dr_grpo"])
def test_a_discount_makes_nothing_large_of_a_group_that_agrees(policy: Policies, baseline: str) -> None:
    """Its deviation is 0, and a discounted reward is not its mean."""
    made = learner(policy, baseline=baseline, discount=0.9)
    data = replace(round_of(made.policy), outcome=torch.ones(GROUPS * EACH))
    made.begin(data, PHASE)
    (part,) = made.minibatches(0)
    found = group_relative_advantage(made.spec, made.algorithm, part, data.behaviour_logp)
    to_come = data.mask.flip(1).cumsum(1).flip(1) - 1.0
    assert torch.allclose(found, (0.9**to_come - 1.0) * data.mask, atol=1e-6)


def test_a_learner_goes_on_from_its_state_as_if_nothing_had_happened(policy: Policies) -> None:
    settings = {"algorithm": "decoupled_ppo", "hyper": {"proximal": "ewma"}}
    straight, stopped = learner(policy, **settings), learner(policy, **settings)
    for made in (straight, stopped):
        made.train(round_of(made.policy), PHASE)
    resumed = learner(policy, **settings)
    resumed.load_state_dict(stopped.state_dict())
    a, _ = straight.train(round_of(straight.policy, seed=1), PHASE)
    b, _ = resumed.train(round_of(resumed.policy, seed=1), PHASE)
    assert a == b
    assert all(torch.equal(x, y) for x, y in zip(straight.parameters, resumed.parameters, strict=True))


def test_what_a_method_asks_for_is_given(policy: Policies) -> None:
    made = learner(policy, algorithm="tba")
    data = round_of(made.policy)
    now = made.policy.score(data.prompt, data.prompt_mask, data.token, data.mask, norm=True)
    logits = made.policy.forward(
        torch.cat([data.prompt, data.token], 1),
        torch.cat([data.prompt_mask, data.mask.long()], 1),
        (torch.cat([data.prompt_mask, data.mask.long()], 1).cumsum(1) - 1).clamp(min=0),
        None,
        WIDTH + 1,
    )[:, :-1]
    assert now.norm is not None
    assert torch.allclose(now.norm, logits.softmax(-1).square().sum(-1) * data.mask, atol=1e-5)
    p = logits.softmax(-1)
    assert torch.allclose(now.entropy, -(p * p.log()).sum(-1) * data.mask, atol=1e-4)
    made.train(data, PHASE)  # the learner moves, the reference stays where the run began
    reference = made._reference_logp(data)
    assert torch.allclose(reference, now.logp, atol=1e-5)
    moved = made.policy.score(data.prompt, data.prompt_mask, data.token, data.mask).logp
    assert not torch.allclose(reference, moved, atol=1e-3)


@pytest.mark.parametrize(("name", "minibatches"), [("ppo_clip", 1), *((name, 2) for name in SERVED)])
@pytest.mark.long
def test_a_fully_truncated_minibatch_has_no_gradient_and_counts(policy: Policies, name: str, minibatches: int) -> None:
    """With `mask_truncated` a round may leave nothing to learn from: no failure, and no step but of what was learnt."""
    made = learner(policy, algorithm=name, mask_truncated=True, minibatches=minibatches, steps=minibatches)
    before = [p.detach().clone() for p in made.parameters]
    half = torch.arange(GROUPS * EACH) < GROUPS * EACH // 2
    data = round_of(made.policy, drift=0.0)
    for cut, silent in ((torch.ones_like(half), 1.0), (half, 1.0 - 1.0 / minibatches)):
        report, _ = made.train(replace(data, truncated=cut), PHASE)
        assert all(np.isfinite(x) for x in report.values() if isinstance(x, float)), name
        assert report["untaught_steps"] == pytest.approx(silent)
        moved = not close(before, [p.detach() for p in made.parameters], 0.0)
        assert moved is (not bool(cut.all()))
    assert report["gradient_steps"] == 2 * minibatches
