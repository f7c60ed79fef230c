"""Causal attention with padding told by the keys, against the same with a dense mask."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from staleharness.language.model.kv_cache import CausalWithPadding, attend, mask_term

HEADS, GROUPS, WIDTH = 4, 2, 8


def tensors(new: int, length: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(new)
    shapes = (3, HEADS, new, WIDTH), (3, GROUPS, length, WIDTH), (3, GROUPS, length, WIDTH)
    query, keys, values = (torch.randn(s, generator=generator).requires_grad_() for s in shapes)
    attention = torch.ones(3, length, dtype=torch.int64)
    attention[1, :2] = attention[2, : length - 1] = 0  # one row has a single token
    return query, keys, values, attention


@pytest.mark.parametrize("new, length", [(1, 6), (3, 6), (6, 6)], ids=["a-token", "after-a-prompt", "whole"])
def test_marks_in_keys_mask_as_a_dense_mask_does(new: int, length: int) -> None:
    query, keys, values, attention = tensors(new, length)
    dense = attend(query, keys, values, mask_term(attention, new, query.dtype), 0.125)
    marked = attend(query, keys, values, CausalWithPadding.of(attention, query.dtype), 0.125)
    real = attention[:, None, length - new :, None].float()  # of queries
    assert torch.allclose(dense * real, marked * real, atol=1e-6)
    pull = torch.randn(dense.shape, generator=torch.Generator().manual_seed(9)) * real
    leaves = query, keys, values
    for a, b in zip(
        torch.autograd.grad((dense * pull).sum(), leaves),
        torch.autograd.grad((marked * pull).sum(), leaves),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-5)


def test_padding_receives_no_weight_and_no_gradient() -> None:
    query, keys, values, attention = tensors(3, 6)
    output = attend(query, keys, values, CausalWithPadding.of(attention, query.dtype), 0.125)
    (output * attention[:, None, 3:, None]).sum().backward()
    padded = attention == 0
    for leaf in (keys, values):
        assert leaf.grad is not None and leaf.grad.transpose(1, 2)[padded].abs().max() == 0.0


def test_marks_are_exact_in_bfloat16() -> None:
    marks = CausalWithPadding.of(torch.tensor([[0, 1]]), torch.bfloat16).marks[0, 0]
    assert marks[:, 0].tolist() == [-4096.0, 0.0] and marks[:, 1:].abs().max() == 0.0


def test_rows_of_padding_alone_stay_finite() -> None:
    """With a mask of -1e30 a GPU's backward pass of such a row in bfloat16 was NaN."""
    query, keys, values, attention = tensors(3, 6)
    attention[0] = 0
    for mask in (CausalWithPadding.of(attention, query.dtype), mask_term(attention, 3, query.dtype)):
        output = attend(query, keys, values, mask, 0.125)
        gradients = torch.autograd.grad(output.sum(), (query, keys, values))
        assert output.isfinite().all() and all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize(
    "device, dtype, head, serves",
    [
        ("cuda", torch.bfloat16, 64, True),
        ("cuda", torch.bfloat16, 248, True),
        ("cuda", torch.bfloat16, 256, False),
        ("cuda", torch.float32, 64, False),
        ("cpu", torch.bfloat16, 64, False),
    ],
)
def test_flash_attention_serves_narrow_heads_in_bfloat16(
    device: str, dtype: torch.dtype, head: int, serves: bool
) -> None:
    assert CausalWithPadding.serves(torch.device(device), dtype, head) == serves
