"""The token learner against a literal reading of GRPO, row by row, and against itself in pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from staleharness import objectives
from staleharness.algorithm import ALGORITHMS, make_algorithm
from staleharness.batch import Completions
from staleharness.language.model.causal_lm import CausalLM
from staleharness.language.prompt_set import pad_left
from staleharness.simulator.methods import passes_of
from staleharness.tokens.learner import TokenLearner
from staleharness.tokens.minibatch import Minibatch
from staleharness.tokens.targets import group_relative_advantage

Policies = Callable[..., CausalLM]
GROUPS, EACH, WIDTH = 4, 3, 7
PHASE, STEPS_DONE = 5, 9


def round_of(policy: CausalLM, seed: int = 0, drift: float = 0.3) -> Completions:
    """A generation round of random completions; behaviour log-probabilities lie `drift` from the learner's."""
    rng = np.random.default_rng(seed)
    rows, size = GROUPS * EACH, len(policy.tokenizer)
    questions = [rng.integers(3, size, rng.integers(1, 6)).tolist() for _ in range(GROUPS)]
    prompt, prompt_mask = pad_left([q for q in questions for _ in range(EACH)], policy.pad, policy.device)
    mask = torch.from_numpy((np.arange(WIDTH) < rng.integers(1, WIDTH + 1, rows)[:, None]).astype(np.float32))
    token = torch.from_numpy(rng.integers(3, size, (rows, WIDTH))) * mask.long()
    with torch.no_grad():
        logp = policy.score(prompt, prompt_mask, token, mask).logp
    noise = torch.from_numpy(rng.normal(0.0, 1.0, (rows, WIDTH)).astype(np.float32))
    version = torch.from_numpy(rng.integers(2, PHASE + 1, (rows, 1))).expand(rows, WIDTH)
    return Completions(
        prompt=prompt,
        prompt_mask=prompt_mask,
        token=token,
        mask=mask,
        behaviour_logp=(logp + drift * noise) * mask,
        version=version,
        gradient_step=version + 1,
        group=torch.arange(GROUPS).repeat_interleave(EACH),
        outcome=torch.tensor([1.0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1]),
        truncated=torch.from_numpy(rng.random(rows) < 0.3),
        unparsed=torch.zeros(rows, dtype=torch.bool),
    )


def learner(policies: Policies, algorithm: str = "ppo_clip", **settings: Any) -> TokenLearner:
    policy = policies(
        algorithm=algorithm, prompts=GROUPS, completions=EACH, completion_tokens=WIDTH, **settings
    )
    return TokenLearner(policy.spec, policy, make_algorithm(policy.spec))


def gradients(policies: Policies, data: Completions | None = None, **settings: Any) -> list[Tensor]:
    """The gradient of one step, before it is clipped."""
    made = learner(policies, **{"max_grad_norm": 1e9, **settings})
    made.train(round_of(made.policy) if data is None else data, PHASE)
    return [p.grad.clone() for p in made.parameters if p.grad is not None]


def literal_gradients(policy: CausalLM, data: Completions, aggregation: str, clip: float) -> list[Tensor]:
    """GRPO as printed: per group, per completion, per token; one unpadded forward pass per completion."""
    policy.model.zero_grad()
    total_tokens = float(data.mask.sum())
    loss = torch.zeros((), dtype=torch.float64)
    for row in range(len(data.token)):
        group = data.outcome[data.group == data.group[row]].numpy()
        advantage = (float(data.outcome[row]) - group.mean()) / (group.std(ddof=1) + 1e-6)
        prompt = data.prompt[row][data.prompt_mask[row] == 1].tolist()
        count = int(data.mask[row].sum())
        token = data.token[row, :count].tolist()
        logp = policy.model(input_ids=torch.tensor([prompt + token])).logits[0].double().log_softmax(-1)
        for t, chosen in enumerate(token):
            ratio = (logp[len(prompt) + t - 1, chosen] - float(data.behaviour_logp[row, t])).exp()
            surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)
            weight = {
                "token-mean": 1.0 / total_tokens,
                "seq-mean-token-mean": 1.0 / count / len(data.token),
                "seq-mean-token-sum-norm": 1.0 / WIDTH / len(data.token),
            }[aggregation]
            loss = loss - weight * surrogate
    loss.backward()
    return [p.grad.clone() for p in policy.parameters.values() if p.grad is not None]


def close(a: list[Tensor], b: list[Tensor], tolerance: float = 1e-5) -> bool:
    return len(a) == len(b) and all(
        torch.allclose(x, y, atol=tolerance, rtol=1e-4) for x, y in zip(a, b, strict=True)
    )


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


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_method_takes_a_step_on_tokens(policy: Policies, name: str) -> None:
    made = learner(policy, algorithm=name)
    before = [p.detach().clone() for p in made.parameters]
    report, seconds = made.train(round_of(made.policy, drift=0.0), PHASE)  # on-policy nothing is rejected
    assert report["gradient_steps"] == 1
    assert not close(before, [p.detach() for p in made.parameters], 1e-6)
    assert set(seconds) == {"proximal", "loss", "train"}


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_a_method_costs_the_passes_that_it_is_said_to_cost(policy: Policies, name: str) -> None:
    """Counted, with two gradient steps in the phase, against PPO-clip, which needs nothing more than all."""
    steps = 2
    made = learner(policy, algorithm=name, minibatches=steps, steps=steps)
    calls: list[int] = []
    score = made.policy.score

    def counted(prompt: Tensor, *rest: Any) -> Any:
        calls.append(len(prompt))
        return score(prompt, *rest)

    made.policy.score = counted  # type: ignore[method-assign]
    made.train(round_of(made.policy), PHASE)
    said = passes_of(made.algorithm)
    own = GROUPS * EACH if said.by_row else steps
    counts = (own, said.per_phase, said.per_step * steps)
    assert len(calls) - 1 == sum(counts)  # one is of `round_of`
    assert said == passes_of(made.algorithm, replace(made.spec))


@pytest.mark.parametrize(("realign", "passes"), [("phase", 1), ("epoch", 3), ("step", 0)])
def test_targets_cost_a_pass_over_the_phase_each_time_they_are_realigned(
    policy: Policies, realign: str, passes: int
) -> None:
    """At every step they are taken under the pass that the gradient goes through."""
    hyper = {"advantage": "vtrace", "realign_every": realign}
    made = learner(policy, algorithm="vaco", hyper=hyper, epochs=3, steps=3)
    assert passes_of(made.algorithm, made.spec).per_phase == passes
    data, calls, score = round_of(made.policy), [], made.policy.score

    def counted(*given: Any) -> Any:
        calls.append(given)
        return score(*given)

    made.policy.score = counted  # type: ignore[method-assign]
    made.train(data, PHASE)
    assert len(calls) == passes + 3  # and one for each gradient step


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


def test_rows_of_a_minibatch_are_the_rows_of_all_that_is_in_it(policy: Policies) -> None:
    data = round_of(policy())
    numbered = torch.arange(1.0, GROUPS * EACH + 1)[:, None].expand(-1, WIDTH)
    batch = Minibatch(
        data=data, mask=numbered, weights=2 * numbered, proximal_logp=-3 * numbered, aligned_logp=-4 * numbered,
        reference_logp=-5 * numbered, lag=6 * numbered, gradient_lag=7 * numbered, state={"a": 1.0},
    )  # fmt: skip
    index = torch.tensor([5, 2])
    some = batch.rows(index)
    for name in ("mask", "weights", "proximal_logp", "aligned_logp", "reference_logp", "lag", "gradient_lag"):
        assert torch.equal(getattr(some, name), getattr(batch, name)[index]), name
    assert torch.equal(some.data.token, data.token[index])
    d = some.decisions(-some.mask, 0.5 * some.mask)
    wanted = {
        "target_logp": -some.mask, "advantage": 0.5 * some.mask, "mask": some.mask, "lag": some.lag,
        "gradient_lag": some.gradient_lag, "proximal_logp": some.proximal_logp, "reference_logp": some.reference_logp,
        "behaviour_logp": data.behaviour_logp[index], "group": data.group[index], "outcome": data.outcome[index],
    }  # fmt: skip
    assert all(torch.equal(getattr(d, name), value) for name, value in wanted.items())
    assert d.state == {"a": 1.0}


def test_completions_that_were_cut_teach_nothing_where_the_run_says_so(policy: Policies) -> None:
    made = learner(policy)
    data = round_of(made.policy)
    other = data.token.clone()
    cut = data.truncated[:, None] & (data.mask > 0)
    other[cut] = 4  # other tokens in completions that were cut: no trace of them may be left
    changed = Completions(**{**vars(data), "token": other})
    assert close(
        gradients(policy, data, mask_truncated=True), gradients(policy, changed, mask_truncated=True), 1e-7
    )
    assert not close(gradients(policy, data), gradients(policy, changed), 1e-7)


def test_on_policy_weights_are_one_exactly_in_the_first_step(policy: Policies) -> None:
    made = learner(policy)
    report, _ = made.train(round_of(made.policy, drift=0.0), PHASE)
    for key, value in {
        "tv": 0.0,
        "ess": 1.0,
        "weight_max": 1.0,
        "weight_min": 1.0,
        "kl_k3": 0.0,
        "chi2": 0.0,
    }.items():
        assert report[key] == value, key


def test_the_weights_said_of_a_minibatch_are_raw_and_by_hand(policy: Policies) -> None:
    made = learner(policy)
    data = round_of(made.policy)
    with torch.no_grad():
        logp = made.policy.score(data.prompt, data.prompt_mask, data.token, data.mask).logp
    valid = data.mask.numpy().astype(bool)
    log_w = (logp - data.behaviour_logp).double().numpy()
    w = np.exp(log_w[valid])
    sequence = np.exp(np.where(valid, log_w, 0.0).sum(1))
    report, _ = made.train(data, PHASE)
    wanted = {
        "weight_mean": w.mean(), "weight_max": w.max(), "weight_min": w.min(), "weight_std": w.std(),
        "tv": 0.5 * np.abs(w - 1).mean(), "chi2": (w**2).mean() - 1, "kl_k1": -log_w[valid].mean(),
        "kl_k3": (w - 1 - log_w[valid]).mean(), "ess": w.sum() ** 2 / (w**2).sum() / w.size,
        "weight_sequence_max": sequence.max(), "weight_sequence_mean": sequence.mean(),
        "ess_sequence": sequence.sum() ** 2 / (sequence**2).sum() / sequence.size,
    }  # fmt: skip
    for key, value in wanted.items():
        assert report[key] == pytest.approx(value, rel=1e-4, abs=1e-5), key
    assert report["clipped"] == pytest.approx(report["clipped_positive"] + report["clipped_negative"])
    assert report["algorithm/clipped"] == pytest.approx(report["clipped"])
    centred = data.outcome.view(GROUPS, EACH) - data.outcome.view(GROUPS, EACH).mean(1, keepdim=True)
    sigma = data.outcome.view(GROUPS, EACH).std(1, keepdim=True) + 1e-6
    advantage = np.broadcast_to((centred / sigma).view(-1, 1).double().numpy(), valid.shape)[valid]
    surrogate = np.minimum(w * advantage, w.clip(0.8, 1.2) * advantage)
    assert report["policy_loss"] == pytest.approx(-surrogate.mean(), rel=1e-4)
    assert report["truncated"] == pytest.approx(data.truncated.float().mean().item())
    assert report["rollout_length"] == pytest.approx(valid.sum(1).mean())
    lag = PHASE - data.version.numpy()[valid]
    assert report["lag_mean"] == pytest.approx(lag.mean())
    assert report["lag_histogram"] == np.bincount(lag).tolist()


def proximal_extremes(report: dict[str, Any]) -> tuple[float, float]:
    return report["proximal_weight_min"], report["proximal_weight_max"]


def test_the_proximal_weight_is_the_start_of_the_phase_over_who_acted(policy: Policies) -> None:
    made = learner(policy, algorithm="decoupled_ppo", minibatches=2, learning_rate=1e-2)
    data = round_of(made.policy, drift=1.0)
    with torch.no_grad():
        start = made.policy.score(data.prompt, data.prompt_mask, data.token, data.mask).logp
    u = (start - data.behaviour_logp).double().numpy()[data.mask.numpy().astype(bool)]
    report, _ = made.train(data, PHASE)
    assert proximal_extremes(report) == pytest.approx((np.exp(u.min()), np.exp(u.max())), rel=1e-4)


def test_the_proximal_weight_of_an_interpolation_is_w_to_one_minus_one_over_d(policy: Policies) -> None:
    made = learner(policy, algorithm="a3po")
    data = round_of(made.policy)
    with torch.no_grad():
        now = made.policy.score(data.prompt, data.prompt_mask, data.token, data.mask).logp
    valid = data.mask.numpy().astype(bool)
    lag = (PHASE - data.version).double().numpy()[valid]
    u = np.exp((1.0 - 1.0 / np.maximum(lag, 1.0)) * (now - data.behaviour_logp).double().numpy()[valid])
    report, _ = made.train(data, PHASE)
    assert proximal_extremes(report) == pytest.approx((u.min(), u.max()), rel=1e-4)
    assert u.max() < report["weight_max"] and set(lag) == {0.0, 1.0, 2.0, 3.0}


@pytest.mark.parametrize("algorithm", ["ppo_clip", "vaco", "decoupled_ppo", "a3po"])
def test_who_has_no_proximal_policy_of_its_own_has_no_weight_for_it(policy: Policies, algorithm: str) -> None:
    made = learner(policy, algorithm=algorithm)
    report, _ = made.train(round_of(made.policy), PHASE)
    assert ("proximal_weight_max" in report) is (algorithm in ("decoupled_ppo", "a3po"))


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


def test_v_trace_on_tokens_weighs_a_reward_by_the_truncated_ratios_that_follow(policy: Policies) -> None:
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
        torch.cat([data.prompt, data.token], 1), torch.cat([data.prompt_mask, data.mask.long()], 1),
        (torch.cat([data.prompt_mask, data.mask.long()], 1).cumsum(1) - 1).clamp(min=0), None, WIDTH + 1,
    )[:, :-1]  # fmt: skip
    assert now.norm is not None
    assert torch.allclose(now.norm, logits.softmax(-1).square().sum(-1) * data.mask, atol=1e-5)
    p = logits.softmax(-1)
    assert torch.allclose(now.entropy, -(p * p.log()).sum(-1) * data.mask, atol=1e-4)
    made.train(data, PHASE)  # the learner moves, the reference stays where the run began
    reference = made._reference_logp(data)
    assert torch.allclose(reference, now.logp, atol=1e-5)
    moved = made.policy.score(data.prompt, data.prompt_mask, data.token, data.mask).logp
    assert not torch.allclose(reference, moved, atol=1e-3)


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean"])
@pytest.mark.parametrize("form", ["paper", "release"])
def test_the_optimal_baseline_of_one_backward_pass_is_that_of_two(
    policy: Policies, aggregation: str, form: str
) -> None:
    """The gradient of VCPO against a literal reading: norms of every completion's own gradient first, then the loss."""
    settings = {"algorithm": "vcpo", "aggregation": aggregation, "hyper": {"baseline": form, "cap": 1.5}}
    found = gradients(policy, **settings)
    fresh = policy(prompts=GROUPS, completions=EACH)
    data = round_of(fresh)
    total = [torch.zeros_like(p) for p in fresh.parameters.values()]
    tokens = float(data.mask.sum())
    for g in range(GROUPS):
        rows = range(g * EACH, (g + 1) * EACH)
        reward = data.outcome[g * EACH : (g + 1) * EACH].numpy()
        own, weight, length = [], [], []
        for row in rows:
            one = data.rows(torch.tensor([row]))
            fresh.model.zero_grad()
            logp = fresh.score(one.prompt, one.prompt_mask, one.token, one.mask).logp
            logp.sum().backward()
            own.append([p.grad.clone() for p in fresh.parameters.values() if p.grad is not None])
            weight.append(float((logp.detach() - one.behaviour_logp).sum().exp()))
            length.append(float(one.mask.sum()))
        w, n = np.array(weight), np.array(length)
        norm = np.array([sum(float(x.square().sum()) for x in each) for each in own])
        share = w**2 * norm if form == "paper" else w**2 * np.minimum(w, 1.5) ** 2 * norm / n**2
        baseline = (share * reward).sum() / share.sum()
        sigma = reward.std(ddof=1) + 1e-6
        scale = np.full(EACH, 1.0 / tokens) if aggregation == "token-mean" else 1.0 / n / (GROUPS * EACH)
        for i in range(EACH):
            factor = scale[i] * min(w[i], 1.5) * (reward[i] - baseline) / sigma
            total = [t - factor * x for t, x in zip(total, own[i], strict=True)]
    assert close(found, total)
    assert max(float(x.abs().max()) for x in total) > 1e-3
    plain = gradients(policy, **{**settings, "hyper": {"baseline": "group", "cap": 1.5}})
    assert not close(found, plain)


def test_a_group_of_equal_rewards_adds_nothing_to_the_optimal_baselines_gradient(policy: Policies) -> None:
    """Not even rounding: 1/σ is 1e6 there."""
    data = round_of(policy(prompts=GROUPS, completions=EACH))
    right, wrong = data.outcome.clone(), data.outcome.clone()
    for group in (0, GROUPS - 1):
        right[data.group == group], wrong[data.group == group] = 1.0, 0.0
    found = [gradients(policy, replace(data, outcome=x), algorithm="vcpo") for x in (right, wrong)]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert max(float(x.abs().max()) for x in found[0]) > 1e-3


@pytest.mark.parametrize("cap", [1.5, 1e9])
def test_the_second_moment_that_the_optimal_baseline_leaves_is_that_of_the_rows_gradients(
    policy: Policies, cap: float
) -> None:
    settings = {"algorithm": "vcpo", "aggregation": "seq-mean-token-mean", "hyper": {"cap": cap}}
    made = learner(policy, **settings)
    data = round_of(made.policy)
    report, _ = made.train(data, PHASE)
    fresh = policy(prompts=GROUPS, completions=EACH)
    own, mean = 0.0, 0.0
    for g in range(GROUPS):
        reward = data.outcome[g * EACH : (g + 1) * EACH].double().numpy()
        if reward.min() == reward.max():
            continue
        share, energy = [], []
        for row in range(g * EACH, (g + 1) * EACH):
            one = data.rows(torch.tensor([row]))
            fresh.model.zero_grad()
            logp = fresh.score(one.prompt, one.prompt_mask, one.token, one.mask).logp
            logp.sum().backward()
            norm = sum(float(p.grad.square().sum()) for p in fresh.parameters.values() if p.grad is not None)
            w = float((logp.detach() - one.behaviour_logp).sum().exp())
            share.append(w**2 * norm)
            energy.append(min(w, cap) ** 2 * norm / float(one.mask.sum()) ** 2)
        baseline = np.dot(share, reward) / np.sum(share)
        sigma = reward.std(ddof=1)
        own += np.dot(energy, (reward - baseline) ** 2) / sigma**2
        mean += np.dot(energy, (reward - reward.mean()) ** 2) / sigma**2
    assert report["second_moment_ratio"] == pytest.approx(own / mean, rel=1e-3)
    equal, _ = learner(policy, **settings).train(replace(data, outcome=torch.ones(GROUPS * EACH)), PHASE)
    assert equal["second_moment_ratio"] == 1.0 and equal["grad_norm"] == 0.0
    plain, _ = learner(policy, algorithm="vcpo", hyper={"baseline": "group"}).train(data, PHASE)
    assert "second_moment_ratio" not in plain


def test_vcpo_steps_by_the_effective_sample_size_of_untruncated_weights(policy: Policies) -> None:
    made = learner(policy, algorithm="vcpo", hyper={"baseline": "group"})
    report, _ = made.train(round_of(made.policy), PHASE)
    assert report["step_scale"] == pytest.approx(report["ess_sequence"] ** 0.5, rel=1e-5)
    on_policy, _ = learner(policy, algorithm="vcpo").train(round_of(policy(), drift=0.0), PHASE)
    assert on_policy["step_scale"] == pytest.approx(1.0, abs=1e-6)  # rows are scored alone: other rounding
