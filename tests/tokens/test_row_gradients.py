"""Sums of row gradients, against gradients that are held whole."""

from __future__ import annotations

import pytest
import torch

from staleharness.tokens.minibatch_gradient import RowGradients


def test_row_sums_and_norms_equal_those_of_full_gradients() -> None:
    torch.manual_seed(0)
    used, twice, unused = (torch.randn(3, 4, requires_grad=True) for _ in range(3))
    parameters = [used, twice, unused]
    losses = [lambda x=x: (used * x).sin().sum() + (twice * x).sum() * (twice.exp() * x).sum() for x in range(1, 5)]
    coefficients = [(0.5, 2.0), (0.0, 2.0), (-1.0, 3.0), (0.0, 1.0)]
    whole = []
    for loss in losses:
        for p in parameters:
            p.grad = None
        loss().backward()
        whole.append([torch.zeros_like(p) if p.grad is None else p.grad for p in parameters])
    for p in parameters:
        p.grad = None

    sums = RowGradients(parameters)
    for i, (loss, (in_total, in_group)) in enumerate(zip(losses, coefficients, strict=True)):
        sums.next_row(in_total, in_group)
        with sums.taking():
            loss().backward()
        assert float(sums.squared_norm) == pytest.approx(float(sum(g.square().sum() for g in whole[i])), rel=1e-5)
        assert all(p.grad is None for p in parameters)
        if i == 1:
            sums.end_group(-0.25)
    sums.end_group(0.75)
    for j, found in enumerate(sums.total):
        wanted = sum(a * g[j] for (a, _), g in zip(coefficients, whole, strict=True))
        wanted = wanted - 0.25 * (2.0 * whole[0][j] + 2.0 * whole[1][j])
        wanted = wanted + 0.75 * (3.0 * whole[2][j] + 1.0 * whole[3][j])
        torch.testing.assert_close(found, wanted)


def test_afterwards_gradients_go_where_they_always_went() -> None:
    p = torch.ones(2, requires_grad=True)
    sums = RowGradients([p])
    sums.next_row(1.0, 1.0)
    with sums.taking():
        (3.0 * p).sum().backward()
    (2.0 * p).sum().backward()
    assert p.grad is not None and p.grad.tolist() == [2.0, 2.0]
    assert sums.total[0].tolist() == [3.0, 3.0]
