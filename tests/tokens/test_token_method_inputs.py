"""Whole runs with the learner of tokens, seen by their method, on chains: small enough to work everything out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from assignments import assignment_of
from chain_runs import BATCH, EPOCHS, GROUPS, PHASES, STEPS, H, chains, logp, phases, run
from torch import Tensor
from witness import MethodCalls

from staleharness.base.streams import stream


def bits_of(phase: int, versions: dict[int, Tensor], capacity: int = 3, lag: str = "uniform") -> tuple[Any, Tensor]:
    """(versions [rows], bits [rows, H]) of a phase from its streams and the logits of the versions."""
    rows = GROUPS * BATCH
    drawn = assignment_of(lag, capacity, phase, rows).starts
    noise = torch.from_numpy(stream(0, "action", phase).random((rows, H), np.float32))
    return drawn, (noise < torch.stack([versions[v] for v in drawn]).sigmoid()).long()


def test_decisions_follow_from_streams_and_logits_of_each_step(witness: MethodCalls) -> None:
    """Group by group in the stream's order: who acted, how far behind, what it earned, under which policies."""
    metrics = run(witness, {"anchor": "recompute"})
    versions = {phase: watched[0] for phase, watched in enumerate(phases(witness.watched))}
    for phase, (asked, shown) in enumerate(zip(phases(witness.asked), phases(witness.shown), strict=True)):
        drawn, bits = bits_of(phase, versions)
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
            lag = torch.from_numpy(phase - drawn[rows])[:, None].expand(-1, H)
            now = witness.watched[phase * STEPS + step]
            acted = torch.stack([versions[v] for v in drawn[rows]])
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


def test_step_targets_use_the_current_learner(witness: MethodCalls) -> None:
    run(witness, {"realign": "step", "anchor": "recompute"})
    for d, t in zip(witness.asked, witness.shown, strict=True):
        assert torch.equal(t.target_logp, d.target_logp)


@pytest.mark.parametrize("parts", [1, GROUPS])
def test_epoch_targets_use_the_learner_at_the_epochs_start(witness: MethodCalls, parts: int) -> None:
    hyper = {"realign": "epoch", "anchor": "recompute"}
    run(witness, hyper, minibatches=parts, steps=PHASES * EPOCHS * parts)
    for asked, shown, logits in zip(*map(phases, (witness.asked, witness.shown, witness.watched)), strict=True):
        for step, (d, t) in enumerate(zip(asked, shown, strict=True)):
            bits = (d.target_logp - logp(logits[step], torch.ones(H))).abs() < 1e-5
            begun = logits[step // parts * parts]
            torch.testing.assert_close(t.target_logp, logp(begun, bits.long()))
            torch.testing.assert_close(d.proximal_logp, logp(logits[0], bits.long()))


def test_what_targets_are_shown_of_a_row_is_one_reward_at_its_end(witness: MethodCalls) -> None:
    run(witness, baseline="grpo", discount=0.9, gae_lambda=0.8)
    for d, t in zip(witness.asked, witness.shown, strict=True):
        assert d.outcome is not None and t.gae_lambda == 0.8
        spread = d.outcome.std()
        sigma = spread + 1e-6 if spread > 0 else torch.ones(())
        value = (d.outcome.mean() / sigma).expand(BATCH, H)
        torch.testing.assert_close(t.reward[:, -1], d.outcome / sigma)
        torch.testing.assert_close(t.value, value)
        torch.testing.assert_close(t.next_value, torch.cat([value[:, 1:], torch.zeros(BATCH, 1)], 1))
        assert not bool(t.reward[:, :-1].any())
        row = torch.tensor([0.9] * (H - 1) + [0.0])
        assert torch.equal(t.discount, row.expand(BATCH, H))
        assert torch.equal(t.continues, (row > 0).float().expand(BATCH, H))


def test_the_shadow_is_the_learner_or_lags_behind_by_decay(witness: MethodCalls) -> None:
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


def test_a_methods_step_scale_is_asked_with_its_state_and_taken(witness: MethodCalls) -> None:
    """0 to the power of the phases done: the learner moves in the first phase and never again."""
    metrics = run(witness, {"factor": 0.0})
    weights = phases(witness.watched)
    assert not torch.equal(weights[0][0], weights[0][-1])
    assert all(torch.equal(w, weights[1][0]) for phase in weights[1:] for w in phase)
    assert [m["step_scale"] for m in metrics] == [1.0, 0.0, 0.0, 0.0]


def test_next_state_gets_phase_means_of_own_diagnostics(witness: MethodCalls) -> None:
    metrics = run(witness)
    assert len(witness.told) == PHASES
    for phase, (told, asked) in enumerate(zip(witness.told, phases(witness.asked), strict=True)):
        assert set(told) == {"told", "ratio"}
        ratio = np.mean([float((d.target_logp - d.behaviour_logp).exp().mean()) for d in asked])
        assert told["ratio"] == metrics[phase]["algorithm/ratio"] == pytest.approx(ratio, rel=1e-4)
        assert metrics[phase]["algorithm/phases"] == phase + 1


def test_advantages_are_normalised_where_method_and_run_ask_for_it(witness: MethodCalls) -> None:
    """By the standard deviation of the minibatch (n): the baseline has centred them already, V-trace's it has not."""
    for method in (True, False):
        for asked in (True, False):
            run(witness, {"normalise": method}, normalise_advantage=asked, baseline="none")
            for d in witness.asked:
                assert d.outcome is not None
                raw = d.outcome[:, None].expand(-1, H)
                wanted = (raw - raw.mean()) / (raw.std(correction=0) + 1e-8) if method and asked else raw
                torch.testing.assert_close(d.advantage, wanted, atol=1e-5, rtol=1e-4)


def test_the_reference_is_the_policy_that_the_run_began_with() -> None:
    simulation = chains(algorithm="tba")
    first = simulation.policy.logits.detach().clone()
    simulation.advance()
    simulation.buffer.push(simulation.policy.snapshot(1, simulation.gradient_steps))
    simulation.learner.begin(simulation.collect(1).data, 1)
    for part in simulation.learner.minibatches(0):
        torch.testing.assert_close(part.reference_logp, logp(first, part.data.token))
    assert float((simulation.policy.logits.detach() - first).abs().max()) > 0.1
