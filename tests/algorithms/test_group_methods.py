"""Methods that compare the completions of one prompt, trajectory balance and the optimal token baseline, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from method_examples import examples, inputs_of, make

from staleharness.testing import decisions, gradient_coefficients
from staleharness.testing.example_batches import tensors_of, with_gradient


@pytest.mark.parametrize("seed", range(3))
def test_trajectory_balance_loss_is_the_squared_imbalance(seed: int) -> None:
    """Per completion, with log Ẑ by the definition; the slope by central differences with log Ẑ held still."""
    d, beta = examples(seed, 1.0), 0.7
    s, algorithm = inputs_of(d), make("tba", beta=beta)

    def log_z(b: int) -> float:
        peers = [j for j in range(len(s.at)) if s.group[j] == s.group[b]]
        terms = [-sum(s.log_reference[j, t] for t in s.at[j]) + s.outcome[j] / beta for j in peers]
        return sum(terms) / len(terms)

    def squared_error(b: int, shift: float = 0.0) -> float:
        return float((log_z(b) + shift + sum(s.log_reference[b, t] for t in s.at[b]) - s.outcome[b] / beta) ** 2)

    losses = (algorithm.policy_loss(d).loss * d.mask).sum(1)
    torch.testing.assert_close(losses, torch.tensor([squared_error(b) for b in range(7)], dtype=torch.float64))
    pull, step = gradient_coefficients(algorithm, d), 1e-5
    for b, t in s.everywhere:
        slope = (squared_error(b, step) - squared_error(b, -step)) / (2 * step)
        assert float(pull[b, t]) == pytest.approx(-slope, abs=1e-6)


def test_tba_has_no_gradient_through_the_partition() -> None:
    """log Ẑ is held still: the loss of one row has no gradient in the rows beside it."""
    d = examples(0, 1.0)
    (gradient,) = torch.autograd.grad(make("tba").policy_loss(d).loss[0].sum(), d.target_logp)
    assert gradient[0].any() and not gradient[1:].any()


@pytest.mark.parametrize("name", ["tba", "otb"])
def test_a_completion_that_does_not_teach_is_not_of_its_group(name: str) -> None:
    """Left out by the mask (cut off at the length limit, say), its outcome moves nobody's baseline."""
    d = examples(0, 1.0)
    assert d.outcome is not None and d.group is not None
    group = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    without = replace(d, group=group, mask=d.mask * (torch.arange(7) != 1).double()[:, None])
    other_outcome = replace(without, outcome=d.outcome + 5.0 * (torch.arange(7) == 1))
    alone = replace(without, group=torch.tensor([0, 9, 0, 1, 1, 2, 2]))
    for same in (other_outcome, alone):
        torch.testing.assert_close(gradient_coefficients(make(name), without), gradient_coefficients(make(name), same))


def test_trajectory_balance_is_zero_at_the_tilted_reference() -> None:
    """π ∝ π_ref exp(R/β): log π/π_ref − R/β is one number for a prompt."""
    outcome, beta = [1.0, 0.0, 1.0], 0.5
    ratio = [[math.exp(r / beta - 0.3)] for r in outcome]
    d = decisions([[1.0]] * 3, 0.0, reference_ratio=ratio, group=[4, 4, 4], outcome=outcome)
    pull = gradient_coefficients(make("tba", beta=beta), d)
    torch.testing.assert_close(pull, torch.zeros(3, 1, dtype=torch.float64))


def test_the_optimal_token_baseline_by_hand() -> None:
    """π = ½, Σπ² = ½: each token adds ½. Energies ½, 1 in both rows, R = 1, 0: B = ½ while both go on, then none."""
    d = decisions(
        1.0,
        [[9.0] * 3] * 2,
        target_logp=math.log(0.5),
        logit_norm=0.5,
        mask=[[1, 1, 1], [1, 1, 0]],
        group=[0, 0],
        outcome=[1.0, 0.0],
    )
    expected = torch.tensor([[0.5, 0.5, 1.0], [-0.5, -0.5, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(gradient_coefficients(make("otb"), d), expected)
    expected[0, 2] = 0.0  # its own outcome is its baseline
    torch.testing.assert_close(gradient_coefficients(make("otb", zero_tail=False), d), expected, atol=1e-7, rtol=0)
    alone = replace(d, group=torch.tensor([0, 1]))
    expected = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(gradient_coefficients(make("otb", zero_tail=False), alone), expected)


def test_a_group_is_what_has_one_number_wherever_its_rows_stand() -> None:
    d = examples(0, 1.0)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    assert d.group is not None and d.outcome is not None
    for name in ("tba", "otb"):
        straight = gradient_coefficients(make(name), d)
        rows = {key: getattr(d, key)[order].detach() for key in tensors_of(d)}
        shuffled = gradient_coefficients(make(name), with_gradient(replace(d, **rows)))
        torch.testing.assert_close(shuffled, straight[order])
