"""Versions that stay on the device: read once, the newest not at all, and what acts is what was stored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from decoder_requests import noise, request, versions_of

from staleharness.language.decoder import make_decoder
from staleharness.language.model.causal_lm import CausalLM
from staleharness.language.model.fused_weights import ResidentVersions
from staleharness.language.sampler import behaviour_logp
from staleharness.simulator.policy_buffer import Version

Policies = Callable[..., CausalLM]
MIXED = np.array([0, 2, 1, 1, 0, 2, 2, 0])[:, None]


def version(phase: int) -> Version:
    return Version(phase, phase, {})


def shelf(room: int) -> tuple[ResidentVersions, list[int]]:
    """A shelf of versions whose only weight is their phase, and those that were read."""
    asked: list[int] = []

    def read(v: Version) -> dict[str, torch.Tensor]:
        asked.append(v.phase)
        return {"w": torch.full((2,), float(v.phase))}

    return ResidentVersions(room, read), asked


def test_versions_are_given_in_the_order_asked_for_and_read_once() -> None:
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


def test_all_in_their_places_are_not_copied() -> None:
    held, _ = shelf(2)
    a, b = version(0), version(1)
    assert held.weights([a, b])["w"] is held.stacks["w"]


def test_each_version_comes_from_the_host_once_for_sampling_and_scoring_and_the_newest_not_at_all(
    policy: Policies, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        found.append(behaviour_logp(decoder, asked, decoded, buffer))
    assert sorted(worn) == [0, 1]
    assert torch.equal(*found)
    with torch.no_grad():
        next(iter(actor.parameters.values())).add_(1.0)  # the learner moves on, and the version stays what it was
    assert torch.equal(actor._fused_weights(buffer.newest)["words"], plain.parameters["model.embed_tokens.weight"])
