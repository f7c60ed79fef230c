"""Copies that a thread makes: as the tensors were, there when they are read, errors included."""

from __future__ import annotations

import threading

import pytest
import torch
from raising import raising

from staleharness.language.model import device_to_host
from staleharness.language.model.device_to_host import HostCopies


def test_copies_are_of_the_moment_they_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    go, copy = threading.Event(), device_to_host._to_host
    monkeypatch.setattr(device_to_host, "_to_host", lambda *args: (go.wait(600), copy(*args))[1])
    tensors = {"b": torch.zeros(3), "a": torch.ones(2, requires_grad=True)}
    copies = HostCopies(tensors)
    tensors["b"].add_(7.0)
    go.set()
    assert list(copies) == ["b", "a"] and len(copies) == 2
    assert copies["b"].tolist() == [0.0] * 3
    assert not copies["a"].requires_grad
    assert {name: x.tolist() for name, x in dict(copies).items()} == {"b": [0.0] * 3, "a": [1.0] * 2}


def test_a_copy_that_failed_raises_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_to_host, "_to_host", raising(MemoryError("no room")))
    copies = HostCopies({"a": torch.ones(1)})
    with pytest.raises(MemoryError, match="no room"):
        copies.wait()
    with pytest.raises(MemoryError, match="no room"):
        copies["a"]
