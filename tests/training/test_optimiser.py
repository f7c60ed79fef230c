"""The optimiser is torch's AdamW, bit for bit, and goes on from what it saved."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from staleharness.training.base_learner import all_finite
from staleharness.training.optimiser import AdamW, clip_norm


def random_tensors(generator: torch.Generator) -> list[torch.Tensor]:
    return [torch.randn(shape, generator=generator) for shape in ((7, 5), (5,), (300,))]


def test_steps_equal_those_of_torch_also_after_a_restore() -> None:
    generator = torch.Generator().manual_seed(0)
    mine = random_tensors(generator)
    theirs = [p.clone() for p in mine]
    optimizer = AdamW(mine, 1.0, epsilon=1e-3, weight_decay=0.1)
    reference = torch.optim.AdamW(theirs, lr=1.0, eps=1e-3, weight_decay=0.1, fused=True)
    for step in range(6):
        rate = 0.1 / (1 + step)
        gradients = random_tensors(generator)
        for p, q, gradient in zip(mine, theirs, gradients, strict=True):
            p.grad, q.grad = gradient.clone(), gradient.clone()
        if step % 2:  # a parameter that the loss does not touch stays where it is, and its moments too
            mine[1].grad = theirs[1].grad = None
        reference.param_groups[0]["lr"] = rate
        reference.step()
        if step == 3:
            state = copy.deepcopy(optimizer.state_dict())
            optimizer = AdamW(mine, 1.0, epsilon=1e-3, weight_decay=0.1)
            optimizer.load_state_dict(state)
        optimizer.step(rate)
        assert optimizer.rate == rate
        assert all(torch.equal(p, q) for p, q in zip(mine, theirs, strict=True)), step
    optimizer.zero_grad()
    before = [p.clone() for p in mine]
    optimizer.step(1.0)
    assert all(p.grad is None and torch.equal(p, q) for p, q in zip(mine, before, strict=True))


def test_gradients_are_clipped_as_torch_clips_them() -> None:
    for count in (1, 3):
        for scale in (1e-3, 1.0, 50.0):
            mine = random_tensors(torch.Generator().manual_seed(1))[:count]
            theirs = [p.clone() for p in mine]
            for p, q in zip(mine, theirs, strict=True):
                p.grad, q.grad = scale * p, scale * q
            norm = clip_norm(mine, 0.5)
            assert torch.equal(norm, torch.nn.utils.clip_grad_norm_(theirs, 0.5))
            for p, q in zip(mine, theirs, strict=True):
                assert p.grad is not None and q.grad is not None and torch.equal(p.grad, q.grad)


@pytest.mark.parametrize(
    ("numbers", "finite"),
    [([0.0, -1.0], True), ([3e38, 3e38], True), ([1.0, math.nan], False), ([math.inf, -math.inf], False)],
)
def test_numbers_are_finite_whatever_their_sum(numbers: list[float], finite: bool) -> None:
    tensors = [torch.ones(3), torch.tensor(numbers, requires_grad=True)]
    assert all_finite(tensors) is finite
