"""Products in bfloat16: torch's own where the processor has kernels, else by float32, and nowhere number by number."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from decoder_requests import noise, request, versions_of
from language_fixtures import Policies
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from staleharness.language.in_process_decoders import DECODERS, make_decoder
from staleharness.language.model import fused_forward, matrix_products
from staleharness.language.model.matrix_products import linear, masked_attention, matmul

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "_scaled_dot_product_flash_attention_for_cpu")


def numbers(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def set_kernels(monkeypatch: pytest.MonkeyPatch, present: bool) -> None:
    monkeypatch.setattr(matrix_products, "has_bfloat16_kernels", lambda: present)
    monkeypatch.setattr(fused_forward, "has_bfloat16_kernels", lambda: False)  # weights are not packed


def test_products_without_kernels_are_float32_ones_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    set_kernels(monkeypatch, False)
    x, weight, bias = numbers(2, 5, 16), numbers(7, 16), numbers(7)
    for b in (None, bias):
        expected = F.linear(x.float(), weight.float(), None if b is None else b.float()).bfloat16()
        assert torch.equal(linear(x, weight, b), expected)
    several, biases = numbers(2, 7, 16), numbers(2, 7)
    own = torch.stack([F.linear(x[k].float(), several[k].float(), biases[k].float()) for k in (0, 1)])
    torch.testing.assert_close(linear(x, several, biases).float(), own, rtol=2**-8, atol=2**-8)
    assert torch.equal(matmul(x[0], weight.T), (x[0].float() @ weight.float().T).bfloat16())


def test_gradients_without_kernels_are_within_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    set_kernels(monkeypatch, False)
    query, keys, values, mask = numbers(2, 6, 5, 8), numbers(2, 3, 5, 8), numbers(2, 3, 5, 8), numbers(2, 1, 5, 5)
    x, weight = numbers(3, 16), numbers(7, 16)
    gradients: list[list[Tensor | None]] = []
    for dtype in (torch.bfloat16, torch.float64):
        inputs = [z.to(dtype).clone().requires_grad_() for z in (query, keys, values, x, weight)]
        out = masked_attention(*inputs[:3], mask.to(dtype), 0.3, True)
        product = linear(inputs[3], inputs[4], None)
        assert out.dtype == product.dtype == dtype
        (out.sum() + product.square().sum()).backward()
        gradients.append([z.grad for z in inputs])
    for found, expected in zip(*gradients, strict=True):
        assert found is not None and expected is not None and found.dtype == torch.bfloat16
        assert float((found - expected).norm() / expected.norm()) < 0.02


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_with_kernels_are_those_of_torch(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    set_kernels(monkeypatch, True)
    x, weight, bias = (z.to(dtype) for z in (numbers(5, 16), numbers(7, 16), numbers(7)))
    assert torch.equal(linear(x, weight, bias), F.linear(x, weight, bias))
    assert torch.equal(matmul(x, weight.T), x @ weight.T)


class ProductDtypes(TorchDispatchMode):
    """Number formats of the factors of products, also in backward passes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[torch.dtype] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name.removesuffix("_backward") in PRODUCTS:
            self.found += [z.dtype for z in args if isinstance(z, Tensor)]
        return func(*args, **(kwargs or {}))


def products(policy: Policies, learner: str, decoder: str) -> list[torch.dtype]:
    """Number formats of the products of a scoring, its backward pass and a decoding in bfloat16."""
    actor = policy(dtype="bfloat16", learner=learner)
    buffer = versions_of(actor, 1)
    asked = request(actor, np.zeros((8, 1), dtype=np.int64), uniform=noise())
    with ProductDtypes() as mode:
        decoded = make_decoder(decoder, actor).decode(asked, buffer)
        actor.score(asked.prompt, asked.prompt_mask, decoded.token, decoded.mask).logp.sum().backward()
    return mode.found


@pytest.mark.parametrize(
    ("learner", "decoder"), [*itertools.product(["torch"], ["transformers", "shared_prompts"]), ("native", "native")]
)
def test_without_kernels_no_factor_is_bfloat16(
    policy: Policies, monkeypatch: pytest.MonkeyPatch, learner: str, decoder: str
) -> None:
    assert decoder in DECODERS
    set_kernels(monkeypatch, True)
    assert torch.bfloat16 in products(policy, learner, decoder)
    set_kernels(monkeypatch, False)
    found = products(policy, learner, decoder)
    assert len(found) > 20 and torch.bfloat16 not in found
