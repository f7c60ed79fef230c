"""Whole runs with the learner of tokens, seen by their method, on chains: small enough to work everything out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from witness import Seen

from staleharness.base.streams import stream
from staleharness.batch import Decisions
from staleharness.chain.policy import BitPolicy
from staleharness.chain.spec import ChainSpec
from staleharness.errors import Diverged
from staleharness.lag import parse_lag
from staleharness.task import simulation_of

PHASES, EPOCHS, GROUPS, BATCH, H = 4, 3, 4, 16, 6
STEPS = EPOCHS * GROUPS  # gradient steps of a phase: a minibatch is one group


def run(seen: Seen, hyper: dict[str, Any] | None = None, **settings: Any) -> list[dict[str, Any]]:
    """The metrics of a whole run; the logits at each gradient step are what is watched."""
    for past in (seen.shown, seen.asked, seen.divergence, seen.told, seen.watched):
        past.clear()
    asked = {
        "env": "bit-chain", "algorithm": "witness", "horizon": H, "batch": BATCH, "epochs": EPOCHS, "capacity": 3,
        "minibatches": GROUPS, "steps": PHASES * STEPS, "learning_rate": 0.2, "start": 0.4, "hyper": hyper or {},
        "evaluations": 2, **settings,
    }  # fmt: skip
    simulation: Any = simulation_of(ChainSpec.from_dict(asked))
    seen.watch = lambda: simulation.policy.logits.detach().clone()
    return [record.metrics for record in simulation]


def phases(seen: list[Any]) -> list[list[Any]]:
    """What was seen, phase by phase."""
    size = len(seen) // PHASES
    return [seen[i : i + size] for i in range(0, len(seen), size)]


def logp(logits: Tensor, bits: Tensor) -> Tensor:
    return torch.nn.functional.logsigmoid(torch.where(bits > 0, logits, -logits))


def bits_of(
    phase: int, versions: dict[int, Tensor], capacity: int = 3, lag: str = "uniform"
) -> tuple[Any, Tensor]:
    """(versions [rows], bits [rows, H]) of a phase from its streams and the logits of the versions."""
    rows = GROUPS * BATCH
    assigned = parse_lag(lag, capacity).assign(phase, rows, stream(0, "assignment", phase))
    noise = torch.from_numpy(stream(0, "action", phase).random((rows, H), np.float32))
    return assigned, (noise < torch.stack([versions[v] for v in assigned]).sigmoid()).long()


def test_everything_a_decision_is_told_from_the_streams_and_the_logits_of_each_step(witness: Seen) -> None:
    """Group by group in the stream's order: who acted, how far behind, what it earned, under which policies."""
    metrics = run(witness, {"anchor": "recompute"})
    versions = {phase: watched[0] for phase, watched in enumerate(phases(witness.watched))}
    for phase, (asked, shown) in enumerate(zip(phases(witness.asked), phases(witness.shown), strict=True)):
        assigned, bits = bits_of(phase, versions)
        outcome = (bits.sum(1) >= 5).float()
        same = [len(outcome[g * BATCH : (g + 1) * BATCH].unique()) == 1 for g in range(GROUPS)]
        assert metrics[phase]["groups_without_signal"] == np.mean(same)
        assert metrics[phase]["reward"] == pytest.approx(float(outcome.mean()))
        for step, (d, t) in enumerate(zip(asked, shown, strict=True)):
            epoch, place = divmod(step, GROUPS)
            order = np.arange(GROUPS)
            if epoch > 0:
                order = stream(0, "minibatch", phase, epoch).permutation(GROUPS)
            rows = order[place] * BATCH + np.arange(BATCH)
            lag = torch.from_numpy(phase - assigned[rows])[:, None].expand(-1, H)
            now = witness.watched[phase * STEPS + step]
            acted = torch.stack([versions[v] for v in assigned[rows]])
            assert d.group is not None and d.outcome is not None
            assert d.group.tolist() == [order[place]] * BATCH
            assert torch.equal(d.outcome, outcome[rows])
            assert torch.equal(d.lag, lag) and torch.equal(t.lag, lag)
            assert torch.equal(d.gradient_lag, lag * STEPS + step)
            assert d.state == {"phases": float(phase)}
            torch.testing.assert_close(d.behaviour_logp, logp(acted, bits[rows]))
            torch.testing.assert_close(d.target_logp, logp(now, bits[rows]))
            torch.testing.assert_close(d.proximal_logp, logp(versions[phase], bits[rows]))
            torch.testing.assert_close(t.target_logp, logp(versions[phase], bits[rows]))
            assert torch.equal(t.behaviour_logp, d.behaviour_logp)
            centred = (outcome[rows] - outcome[rows].mean())[:, None].expand(-1, H)
            torch.testing.assert_close(d.advantage, centred)


def test_targets_at_every_step_are_asked_under_the_learner_as_it_stands(witness: Seen) -> None:
    run(witness, {"realign": "step", "anchor": "recompute"})
    for d, t in zip(witness.asked, witness.shown, strict=True):
        assert torch.equal(t.target_logp, d.target_logp)


@pytest.mark.parametrize("parts", [1, GROUPS])
def test_targets_each_epoch_are_asked_under_the_learner_as_it_stood_when_the_epoch_began(
    witness: Seen, parts: int
) -> None:
    hyper = {"realign": "epoch", "anchor": "recompute"}
    run(witness, hyper, minibatches=parts, steps=PHASES * EPOCHS * parts)
    for asked, shown, logits in zip(
        *map(phases, (witness.asked, witness.shown, witness.watched)), strict=True
    ):
        for step, (d, t) in enumerate(zip(asked, shown, strict=True)):
            bits = (d.target_logp - logp(logits[step], torch.ones(H))).abs() < 1e-5
            begun = logits[step // parts * parts]
            torch.testing.assert_close(t.target_logp, logp(begun, bits.long()))
            torch.testing.assert_close(d.proximal_logp, logp(logits[0], bits.long()))


def test_what_targets_are_shown_of_a_row_is_one_reward_at_its_end(witness: Seen) -> None:
    run(witness, baseline="grpo", discount=0.9, gae_lambda=0.8)
    for d, t in zip(witness.asked, witness.shown, strict=True):
        assert d.outcome is not None and t.gae_lambda == 0.8
        sigma = d.outcome.std() + 1e-6
        value = (d.outcome.mean() / sigma).expand(BATCH, H)
        torch.testing.assert_close(t.reward[:, -1], d.outcome / sigma)
        torch.testing.assert_close(t.value, value)
        torch.testing.assert_close(t.next_value, torch.cat([value[:, 1:], torch.zeros(BATCH, 1)], 1))
        assert not bool(t.reward[:, :-1].any())
        row = torch.tensor([0.9] * (H - 1) + [0.0])
        assert torch.equal(t.discount, row.expand(BATCH, H))
        assert torch.equal(t.continues, (row > 0).float().expand(BATCH, H))


def test_a_shadow_that_forgets_at_once_is_the_learner_and_one_that_does_not_lags_behind(
    witness: Seen,
) -> None:
    """The slower one, β = ½: θ'_n = (W θ'/2 + θ)/(W/2 + 1), from all logits up to the step."""
    run(witness, {"anchor": "ewma", "decay": 0.0})
    assert all(torch.allclose(d.proximal_logp, d.target_logp, atol=1e-6) for d in witness.asked)
    run(witness, {"anchor": "ewma", "decay": 0.5})
    history = torch.stack(witness.watched).double()
    bits = torch.ones(H)
    for n in (1, 2, 5, len(history) - 1):
        weight = 0.5 ** torch.arange(n, -1, -1, dtype=torch.float64)
        shadow = (history[: n + 1] * weight[:, None]).sum(0) / weight.sum()
        d = witness.asked[n]
        ones = (d.target_logp - logp(history[n].float(), bits)).abs() < 1e-6  # decisions that were 1
        assert bool(ones.any())
        wanted = logp(shadow.float(), bits).expand_as(d.proximal_logp)
        torch.testing.assert_close(d.proximal_logp[ones], wanted[ones], atol=1e-5, rtol=1e-5)


def test_a_methods_step_scale_is_asked_with_its_state_and_taken(witness: Seen) -> None:
    """0 to the power of the phases done: the learner moves in the first phase and never again."""
    metrics = run(witness, {"factor": 0.0})
    weights = phases(witness.watched)
    assert not torch.equal(weights[0][0], weights[0][-1])
    assert all(torch.equal(w, weights[1][0]) for phase in weights[1:] for w in phase)
    assert [m["step_scale"] for m in metrics] == [1.0, 0.0, 0.0, 0.0]


def test_the_next_state_is_asked_with_the_phases_means_of_the_methods_own_diagnostics(witness: Seen) -> None:
    metrics = run(witness)
    assert len(witness.told) == PHASES
    for phase, (told, asked) in enumerate(zip(witness.told, phases(witness.asked), strict=True)):
        assert set(told) == {"told", "ratio"}
        ratio = np.mean([float((d.target_logp - d.behaviour_logp).exp().mean()) for d in asked])
        assert told["ratio"] == metrics[phase]["algorithm/ratio"] == pytest.approx(ratio, rel=1e-4)
        assert metrics[phase]["algorithm/phases"] == phase + 1


def weight(d: Decisions) -> Tensor:
    return (d.target_logp - d.behaviour_logp).exp()


def test_what_is_said_of_a_phase_is_the_mean_or_the_extreme_over_its_steps_and_the_first_for_its_data(
    witness: Seen,
) -> None:
    for m, asked in zip(run(witness, {"anchor": "recompute"}), phases(witness.asked), strict=True):
        tv = [float(0.5 * (weight(d) - 1.0).abs().mean()) for d in asked]
        assert m["tv"] == pytest.approx(np.mean(tv), rel=1e-4)
        assert m["tv_data"] == pytest.approx(tv[0], rel=1e-4, abs=1e-6)
        assert m["weight_max"] == pytest.approx(max(float(weight(d).max()) for d in asked), rel=1e-4)
        assert m["weight_min"] == pytest.approx(min(float(weight(d).min()) for d in asked), rel=1e-4)
        sequence = [weight(d).prod(1) for d in asked]
        chi2 = np.mean([float(w.square().mean()) - 1.0 for w in sequence])
        assert m["chi2_sequence"] == pytest.approx(chi2, rel=1e-3, abs=1e-5)
        loss = np.mean([float(-(weight(d) * d.advantage).mean()) for d in asked])
        assert m["policy_loss"] == pytest.approx(loss, abs=1e-6)


def test_lag_is_said_in_phases_and_in_gradient_steps_before_the_phase_trains(witness: Seen) -> None:
    for phase, m in enumerate(run(witness, lag="geometric:0.3", capacity=4)):
        lag = np.concatenate([d.lag.flatten().numpy() for d in phases(witness.asked)[phase][:GROUPS]])
        assert m["lag_mean"] == pytest.approx(lag.mean())
        assert m["gradient_lag_mean"] == pytest.approx(lag.mean() * STEPS)
        assert m["lag_p95"] == np.sort(lag)[int(np.ceil(0.95 * lag.size)) - 1]
        assert m["lag_histogram"] == np.bincount(lag.astype(int)).tolist()
        assert m["steps"] == (phase + 1) * STEPS == m["gradient_steps"]


def test_clipped_tokens_are_those_with_an_advantage_and_no_gradient(witness: Seen) -> None:
    """A method that never pulls has clipped whatever had an advantage; plain weighting clips nothing."""
    for m, asked in zip(run(witness, {"mute": True}), phases(witness.asked), strict=True):
        for key, side in (("clipped", 0), ("clipped_positive", 1), ("clipped_negative", -1)):
            share = [
                float(((d.advantage.sign() == side) if side else (d.advantage != 0)).float().mean())
                for d in asked
            ]
            assert m[key] == pytest.approx(np.mean(share), abs=1e-6), key
    assert m["clipped_last"] == pytest.approx(share_of(asked[-1])) and m["clipped_first"] == pytest.approx(
        share_of(asked[0])
    )
    assert all(m["clipped"] == 0.0 for m in run(witness))


def share_of(d: Decisions) -> float:
    return float((d.advantage != 0).float().mean())


def test_without_a_policy_gradient_entropy_moves_by_its_bonus_alone(witness: Seen) -> None:
    still = [m["entropy"] for m in run(witness, {"mute": True})]
    p = torch.sigmoid(witness.watched[0])
    assert still[0] == pytest.approx(float(-(p * p.log() + (1 - p) * (1 - p).log()).mean()), rel=1e-5)
    grown = [m["entropy"] for m in run(witness, {"mute": True}, entropy_coef=0.1, learning_rate=0.01)]
    assert len(set(still)) == 1 and still[0] < grown[0] < grown[-1]


def test_the_bonus_is_on_the_mean_entropy(witness: Seen) -> None:
    """d/dz of the entropy of a bit with logit z is −z p (1 − p)."""
    one = {"epochs": 1, "minibatches": 1, "steps": PHASES, "max_grad_norm": 1e9}
    metrics = run(witness, {"mute": True}, entropy_coef=0.3, **one)
    for m, z in zip(metrics, witness.watched, strict=True):
        p = z.sigmoid()
        assert m["grad_norm"] == pytest.approx(0.3 / H * float((z * p * (1 - p)).norm()), rel=1e-4)


def test_advantages_are_normalised_where_the_method_and_the_run_say_so(witness: Seen) -> None:
    """By the standard deviation of the minibatch (n): the baseline has centred them already, V-trace's it has not."""
    for method in (True, False):
        for asked in (True, False):
            run(witness, {"normalise": method}, normalise_advantage=asked, baseline="none")
            for d in witness.asked:
                assert d.outcome is not None
                raw = d.outcome[:, None].expand(-1, H)
                wanted = (raw - raw.mean()) / (raw.std(correction=0) + 1e-8) if method and asked else raw
                torch.testing.assert_close(d.advantage, wanted, atol=1e-5, rtol=1e-4)


def test_a_table_of_logits_says_of_bits_what_a_distribution_over_two_says() -> None:
    policy = BitPolicy(3, 0.7)
    with torch.no_grad():
        policy.logits.copy_(torch.tensor([0.7, -1.2, 0.1]))
    version = policy.snapshot(0, 0)
    with torch.no_grad():
        policy.logits.add_(1.0)
    later = policy.snapshot(1, 1)
    bits, mask = torch.tensor([[1, 0, 1], [0, 0, 1]]), torch.tensor([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0]])
    none = torch.zeros(2, 1, dtype=torch.int64)
    with policy.acting([version, later], np.array([1, 0])) as forward:
        acted = policy.score(none, none, bits, mask, forward, norm=True)
    for row, logits in enumerate((later.tensors["logits"], version.tensors["logits"])):
        of_bits = torch.distributions.Bernoulli(logits=logits)
        torch.testing.assert_close(acted.logp[row], of_bits.log_prob(bits[row].float()) * mask[row])
        assert acted.entropy is not None and acted.norm is not None
        torch.testing.assert_close(acted.entropy[row], of_bits.entropy() * mask[row])
        p = of_bits.probs
        torch.testing.assert_close(acted.norm[row], (p**2 + (1 - p) ** 2) * mask[row])


def test_rates_anneal_where_the_run_says_so_and_steps_follow(witness: Seen) -> None:
    rates = [m["learning_rate"] for m in run(witness, anneal_learning_rate=True)]
    assert rates == pytest.approx([0.2, 0.15, 0.1, 0.05])
    assert {m["learning_rate"] for m in run(witness)} == {0.2}
    one = {"anneal_learning_rate": True, "epochs": 1, "minibatches": 1, "steps": PHASES, "lag": "fixed:0"}
    run(witness, **one)
    first = (witness.watched[1] - witness.watched[0]).abs()
    assert float(first.max()) == pytest.approx(0.2, rel=1e-3)  # Adam's first step is as long as its rate
    behind = run(witness, lag="fixed:2", step_size="inverse_lag")
    assert [m["step_scale"] for m in behind] == [1.0, 1.0, 0.5, 0.5]


def test_a_gradient_longer_than_the_run_allows_is_cut_and_said_whole(witness: Seen) -> None:
    """ε of Adam makes its first step g/(|g| + ε): with ε far above the gradient it is g/ε, of the clipped gradient."""
    one = {
        "epochs": 1,
        "minibatches": 1,
        "steps": 2,
        "adam_epsilon": 1e3,
        "learning_rate": 1e3,
        "baseline": "none",
    }
    norms, moves = [], []
    for most in (1e9, 1e-3):
        metrics = run(witness, max_grad_norm=most, **one)
        norms.append(metrics[0]["grad_norm"])
        moves.append(float(torch.linalg.vector_norm(witness.watched[1] - witness.watched[0])))
    assert norms[0] == norms[1] > 1e-2
    assert moves[0] == pytest.approx(norms[0], rel=1e-2) and moves[1] == pytest.approx(1e-3, rel=1e-2)


def test_a_loss_that_is_not_finite_is_said_with_its_step(witness: Seen) -> None:
    with pytest.raises(Diverged, match="policy_loss is not finite at gradient step 2 of phase 1"):
        run(witness, {"breaks_at": STEPS + 2})


def test_a_step_that_is_too_long_is_said_with_its_phase(witness: Seen) -> None:
    with pytest.raises(Diverged, match="a parameter is not finite after phase 0"):
        run(witness, learning_rate=1e39, epochs=1, minibatches=1, steps=PHASES)


def test_scores_are_of_the_policy_after_its_phase(witness: Seen) -> None:
    """Two evaluations of four phases: after the second and the fourth."""
    metrics = run(witness)
    assert [m["eval_sampled"] is not None for m in metrics] == [False, True, False, True]
    after_second = torch.sigmoid(phases(witness.watched)[2][0].double()).numpy()
    ways = np.stack(np.meshgrid(*[[0, 1]] * H, indexing="ij"), -1).reshape(-1, H)
    chance = np.where(ways == 1, after_second, 1.0 - after_second).prod(1)
    assert metrics[1]["eval_sampled"] == pytest.approx(float(chance[ways.sum(1) >= 5].sum()), rel=1e-6)
    assert metrics[1]["eval_deterministic"] == float((after_second >= 0.5).sum() >= 5)
    assert metrics[1]["eval_sampled"] < 1.0
