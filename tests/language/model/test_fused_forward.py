"""Weights that are laid out once: the same products, and every pass of the decoder goes through them."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np
import pytest
import torch
from decoder_requests import noise, request, versions_of
from language_fixtures import Policies
from torch.nn import functional as F

from staleharness.language.in_process_decoders import make_decoder
from staleharness.language.model import fused_forward
from staleharness.language.model.causal_lm_policy import CausalLM
from staleharness.language.model.fused_forward import MATRICES, fused_weights, prepack
from staleharness.language.model.matrix_products import linear
from staleharness.language.sampler import teacher_force
from staleharness.training.policy_buffer import Version


@pytest.mark.parametrize(
    ("dtype", "rtol", "atol"), [(torch.float32, 1e-5, 1e-6), (torch.bfloat16, 2e-2, 1e-2)], ids=str
)
def test_a_prepacked_product_equals_the_plain_one(
    policy: Policies, dtype: torch.dtype, rtol: float, atol: float
) -> None:
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

    def record(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        read.append(weight.is_mkldnn)
        return linear(x, weight, bias)

    actor = policy()
    buffer = versions_of(actor, 1)
    asked = request(actor, np.zeros((8, 1), dtype=np.int64), uniform=noise())
    monkeypatch.setattr(fused_forward, "linear", record)
    make_decoder("packed_weights", actor).decode(asked, buffer)
    assert read
    assert all(read) or not torch.backends.mkldnn.is_available()


MIXED = np.array([0, 2, 1, 1, 0, 2, 2, 0])[:, None]


def test_matrices_leave_the_host_in_the_precision_of_products(policy: Policies) -> None:
    for kind in ("full", "lora"):
        actor = policy(dtype="bfloat16", versions=kind)
        past = versions_of(actor, 2)[0]
        with actor._with_weights(past):
            expected = {name: w.detach() for name, w in fused_weights(actor.base_model, torch.bfloat16).items()}
        found = actor._fused_weights(past)
        assert found.keys() == expected.keys()
        for name, w in expected.items():
            assert found[name].dtype == w.dtype and torch.equal(found[name], w), name
        with actor._with_weights(past, torch.bfloat16):
            half = {name for name, p in actor.parameters.items() if p.dtype == torch.bfloat16}
        assert all(p.dtype == torch.float32 for p in actor.parameters.values())
        assert half == ({name for name in actor.parameters if "_proj" in name} if kind == "full" else set())


def record_reads(actor: CausalLM, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Phases of the versions whose weights are read from the host, from now on."""
    phases: list[int] = []
    read = actor._with_weights

    def note(version: Version, matrices: torch.dtype) -> AbstractContextManager[None]:
        if not actor.has_weights_of(version):
            phases.append(version.phase)
        return read(version, matrices)

    monkeypatch.setattr(actor, "_with_weights", note)
    return phases


def test_past_versions_are_loaded_once_and_the_learner_never(policy: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = policy()
    buffer, uniform = versions_of(plain, 3), noise()
    actor = policy()
    with torch.no_grad():
        for name, p in actor.parameters.items():
            p.copy_(buffer.newest.tensors[name])
    buffer.push(actor.snapshot(2, 20))  # the learner as it stands is the newest version
    actor.keep_resident(3)
    actor.decodes_in_place = True
    reads = record_reads(actor, monkeypatch)
    found = []
    for one in (actor, plain):
        decoder, asked = make_decoder("transformers", one), request(one, MIXED, uniform=uniform)
        decoded = decoder.complete(asked, buffer)
        found.append(teacher_force(decoder, asked, decoded, buffer).logp)
    assert sorted(reads) == [0, 1]
    assert torch.equal(*found)
    with torch.no_grad():
        next(iter(actor.parameters.values())).add_(1.0)  # the learner moves on, and the version stays what it was
    assert torch.equal(actor._fused_weights(buffer.newest)["embedding"], plain.parameters["model.embed_tokens.weight"])


def test_versions_without_room_are_read_once_per_pass(policy: Policies, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for two of three, decoding and scoring in turn each read the one that left."""
    actor, buffer = policy(), versions_of(policy(), 3)
    actor.keep_resident(2)
    actor.decodes_in_place = True
    reads = record_reads(actor, monkeypatch)
    decoder, asked = make_decoder("transformers", actor), request(actor, MIXED, uniform=noise())
    decoded = decoder.complete(asked, buffer)
    assert reads == [0, 1, 2]
    teacher_force(decoder, asked, decoded, buffer)
    assert reads == [0, 1, 2, 0]
    teacher_force(decoder, asked, decoder.complete(asked, buffer), buffer)
    assert reads == [0, 1, 2, 0, 2, 0]
