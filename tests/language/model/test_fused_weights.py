"""Weights that are laid out once: the same products, and every pass of the decoder goes through them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from decoder_requests import noise, request, versions_of
from torch.nn import functional as F

from staleharness.language.decoder import make_decoder
from staleharness.language.model import fused_forward
from staleharness.language.model.causal_lm import CausalLM
from staleharness.language.model.fused_weights import MATRICES, fused_weights, linear, prepack

Policies = Callable[..., CausalLM]


@pytest.mark.parametrize(
    ("dtype", "rtol", "atol"), [(torch.float32, 1e-5, 1e-6), (torch.bfloat16, 2e-2, 1e-2)], ids=str
)
def test_a_packed_product_is_the_plain_one(policy: Policies, dtype: torch.dtype, rtol: float, atol: float) -> None:
    plain = fused_weights(policy().base_model, dtype)
    laid_out = prepack(plain)
    assert plain.keys() == laid_out.keys()
    different = {name for name, w in laid_out.items() if w is not plain[name]}
    if laid_out["logits"].is_mkldnn:
        assert different == {name for name in plain if name.endswith(MATRICES)}
        assert not any(laid_out[name].requires_grad for name in different)
    else:  # a processor, or a torch, without such kernels
        assert dtype == torch.bfloat16 or not torch.backends.mkldnn.is_available()
        assert not different
    for name in ("0.qkv", "1.down", "logits"):
        weight = plain[name].detach()
        for rows in (1, 7, 32):
            x = torch.randn(rows, 2, weight.shape[1], generator=torch.Generator().manual_seed(rows)).to(dtype)
            for bias in (None, torch.linspace(-1, 1, len(weight)).to(dtype)):
                wanted = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
                found = linear(x, laid_out[name], bias)
                assert found.dtype == dtype
                assert torch.allclose(found.double(), wanted, rtol, atol)


def test_every_product_of_the_decoder_reads_packed_weights(policy: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def noted(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        read.append(weight.is_mkldnn)
        return linear(x, weight, bias)

    actor = policy()
    buffer = versions_of(actor, 1)
    asked = request(actor, np.zeros((8, 1), dtype=np.int64), uniform=noise())
    monkeypatch.setattr(fused_forward, "linear", noted)
    make_decoder("packed_weights", actor).decode(asked, buffer)
    assert read
    assert all(read) or not torch.backends.mkldnn.is_available()
