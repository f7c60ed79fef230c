"""Versions in the slots of a device are loaded once and never copied; a thread makes copies of the moment."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from raising import raising

from staleharness.language.model import version_offload
from staleharness.language.model.version_offload import HostCopies, ResidentVersions
from staleharness.training.policy_buffer import Version


def version(phase: int) -> Version:
    return Version(phase, phase, {})


def resident_versions(capacity: int) -> tuple[ResidentVersions, list[int]]:
    """Resident versions whose weights are their phase, and the phases of those that were read."""
    loads: list[int] = []

    def read(v: Version) -> dict[str, torch.Tensor]:
        loads.append(v.phase)
        return {"w": torch.full((2,), float(v.phase)), "words": torch.full((3, 2), float(v.phase))}

    return ResidentVersions(capacity, read), loads


def test_versions_are_loaded_once_in_the_requested_order() -> None:
    resident, loads = resident_versions(3)
    a, b, c, d = (version(phase) for phase in range(4))
    assert resident.weights([b, a])["w"][:, 0].tolist() == [1.0, 0.0]
    assert resident.weights([a, b])["w"][:, 0].tolist() == [0.0, 1.0]
    assert resident.weights([c])["w"].tolist() == [2.0, 2.0]
    assert loads == [1, 0, 2]
    assert resident.weights([d, b])["w"][:, 0].tolist() == [3.0, 1.0]  # the oldest left, which nobody had asked for
    assert resident.weights([c, b])["w"][:, 0].tolist() == [2.0, 1.0]
    assert loads == [1, 0, 2, 3]
    assert resident.weights([version(1)])["w"].tolist() == [1.0, 1.0] and loads[-1] == 1  # of that phase, another one
    with pytest.raises(ValueError, match="4 versions do not fit into 3 slots"):
        resident.weights([a, b, c, d])
    with pytest.raises(ValueError, match=r"a version occurs twice in phases \[1, 2, 1\]"):
        resident.weights([b, c, b])
    assert loads == [1, 0, 2, 3, 1]


def test_different_versions_are_never_copied_whatever_their_order() -> None:
    resident, loads = resident_versions(4)
    all_versions = [version(phase) for phase in range(7)]
    rng = np.random.default_rng(0)
    for _ in range(50):
        some = [all_versions[i] for i in rng.permutation(7)[: rng.integers(2, 5)]]
        absent = {v.phase for v in some} - {v.phase for v in resident.slots if v is not None}
        before = len(loads)
        weights = resident.weights(some)
        for name, stack in resident.stacks.items():
            assert weights[name].data_ptr() == stack.data_ptr()
            assert weights[name].flatten(1)[:, 0].tolist() == [v.phase for v in some], name
        assert sorted(loads[before:]) == sorted(absent)
        for slot, v in enumerate(resident.slots):  # those that do not act have kept their weights
            assert v is None or resident.stacks["w"][slot, 0] == v.phase


def test_copies_are_of_the_moment_they_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    go, copy = threading.Event(), version_offload._to_host
    monkeypatch.setattr(version_offload, "_to_host", lambda *args: (go.wait(600), copy(*args))[1])
    tensors = {"b": torch.zeros(3), "a": torch.ones(2, requires_grad=True)}
    copies = HostCopies(tensors)
    tensors["b"].add_(7.0)
    go.set()
    assert list(copies) == ["b", "a"] and len(copies) == 2
    assert copies["b"].tolist() == [0.0] * 3
    assert not copies["a"].requires_grad
    assert {name: x.tolist() for name, x in dict(copies).items()} == {"b": [0.0] * 3, "a": [1.0] * 2}


def test_a_copy_that_failed_raises_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_offload, "_to_host", raising(MemoryError("no room")))
    copies = HostCopies({"a": torch.ones(1)})
    with pytest.raises(MemoryError, match="no room"):
        copies.wait()
    with pytest.raises(MemoryError, match="no room"):
        copies["a"]
