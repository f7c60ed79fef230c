"""Weights that are laid out once: the same products, and every pass of the decoder goes through them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from decoder_requests import noise, request, versions_of
from language_fixtures import Policies
from torch.nn import functional as F

from staleharness.language.decoder_interface import make_decoder
from staleharness.language.model import fused_forward
from staleharness.language.model.fused_forward import (
    MATRICES,
    ResidentVersions,
    embedding,
    fused_weights,
    linear,
    prepack,
)
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


def version(phase: int) -> Version:
    return Version(phase, phase, {})


def shelf(room: int) -> tuple[ResidentVersions, list[int]]:
    """Resident versions whose weights are their phase, and the phases of those that were read."""
    asked: list[int] = []

    def read(v: Version) -> dict[str, torch.Tensor]:
        asked.append(v.phase)
        return {"w": torch.full((2,), float(v.phase)), "words": torch.full((3, 2), float(v.phase))}

    return ResidentVersions(room, read), asked


def test_versions_are_loaded_once_in_the_requested_order() -> None:
    held, asked = shelf(3)
    a, b, c, d = (version(phase) for phase in range(4))
    assert held.weights([b, a])["w"][:, 0].tolist() == [1.0, 0.0]
    assert held.weights([a, b, a])["w"][:, 0].tolist() == [0.0, 1.0, 0.0]
    assert held.weights([c])["w"].tolist() == [2.0, 2.0]
    assert asked == [1, 0, 2]
    assert held.weights([d, b])["w"][:, 0].tolist() == [3.0, 1.0]  # the oldest left, which nobody had asked for
    assert held.weights([c, b])["w"][:, 0].tolist() == [2.0, 1.0]
    assert asked == [1, 0, 2, 3]
    assert held.weights([version(1)])["w"].tolist() == [1.0, 1.0] and asked[-1] == 1  # of that phase, another one
    with pytest.raises(ValueError, match="4 versions do not fit into 3 slots"):
        held.weights([a, b, c, d])


def test_an_embedding_is_looked_up_by_slot_and_not_copied() -> None:
    held, _ = shelf(3)
    a, b = version(0), version(1)
    held.weights([a, b])
    both = held.weights([b, a])
    assert both["words"] is held.stacks["words"]
    found = embedding(torch.tensor([[0, 2], [1, 1]]), both["words"], None, both["slots"])
    assert found[..., 0].tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_all_versions_in_slot_order_are_not_copied() -> None:
    held, _ = shelf(2)
    a, b = version(0), version(1)
    assert held.weights([a, b])["w"] is held.stacks["w"]


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
    worn: list[int] = []
    wearing = actor._with_weights
    monkeypatch.setattr(actor, "_with_weights", lambda v: worn.append(v.phase) or wearing(v))
    found = []
    for one in (actor, plain):
        decoder, asked = make_decoder("transformers", one), request(one, MIXED, uniform=uniform)
        decoded = decoder.complete(asked, buffer)
        found.append(teacher_force(decoder, asked, decoded, buffer).logp)
    assert sorted(worn) == [0, 1]
    assert torch.equal(*found)
    with torch.no_grad():
        next(iter(actor.parameters.values())).add_(1.0)  # the learner moves on, and the version stays what it was
    assert torch.equal(actor._fused_weights(buffer.newest)["words"], plain.parameters["model.embed_tokens.weight"])
