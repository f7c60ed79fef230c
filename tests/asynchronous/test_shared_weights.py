"""Weights in shared memory: readers never get a mixture of two versions."""

from __future__ import annotations

import itertools
import multiprocessing
from multiprocessing.connection import Connection
from types import SimpleNamespace

import pytest
import torch
from toy_actors import version

from staleharness.asynchronous import shared_weights
from staleharness.asynchronous.shared_weights import SharedWeights

LARGE = 300_000  # numbers: long enough to copy that a writer comes in between


def read(weights: SharedWeights, channel: Connection) -> None:
    """Read until reads and writes have overlapped, however fast either is; send how many reads mixed versions."""
    torch.set_num_threads(1)
    torn, reads, seen = 0, 0, set[int]()
    while reads <= 200 or len(seen) <= 50:
        found = weights.newest()
        numbers = {float(end) for name in ("weights", "count") for end in found.tensors[name].aminmax()}
        odd = found.tensors["flag"].unique().tolist()
        torn += numbers != {found.phase} or odd != [found.phase % 2 == 1] or found.gradient_step != 10 * found.phase
        reads += 1
        seen.add(found.phase)
    channel.send(torn)


def test_no_reader_ever_sees_a_torn_version() -> None:
    context = multiprocessing.get_context("forkserver")
    weights = SharedWeights(context, version(0, LARGE))
    weights.publish(version(0, LARGE))
    versions = itertools.cycle([version(phase, LARGE) for phase in range(64)])
    here, there = context.Pipe()
    process = context.Process(target=read, args=(weights, there), daemon=True)
    process.start()
    there.close()
    while not here.poll():
        weights.publish(next(versions))
    assert here.recv() == 0
    process.join()


def test_a_version_is_read_as_it_was_published() -> None:
    context = multiprocessing.get_context("forkserver")
    weights = SharedWeights(context, version(0))
    for phase in (0, 3, 7):
        weights.publish(version(phase))
        found, expected = weights.newest(), version(phase)
        assert (found.phase, found.gradient_step, weights.newest_phase) == (phase, 10 * phase, phase)
        for name, tensor in expected.tensors.items():
            assert torch.equal(found.tensors[name], tensor) and found.tensors[name].dtype == tensor.dtype
    kept = weights.newest()
    weights.publish(version(9)), weights.publish(version(10))
    assert float(kept.tensors["weights"][0]) == 7.0, "a copy does not change with later versions"


class Halting:
    """A tensor at which the writer fails."""

    def detach(self) -> None:
        raise InterruptedError


def test_a_slot_rewritten_during_the_copy_is_never_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader begins with the newest version; before it has copied that, the one after it is announced, and the one
    after that is half written into the same slot. Checksums here are all alike, so only the count tells."""
    monkeypatch.setattr(shared_weights, "zlib", SimpleNamespace(crc32=lambda content: 0))
    weights = SharedWeights(multiprocessing.get_context("forkserver"), version(0))
    weights.publish(version(0))
    content, busy = weights._content, [False]

    def overtaken(slot: int) -> memoryview:
        if not busy[0]:
            busy[0] = True
            weights.publish(version(1))
            half = version(2)
            half.tensors["flag"] = Halting()  # type: ignore[assignment]
            with pytest.raises(InterruptedError):
                weights.publish(half)
        return content(slot)

    monkeypatch.setattr(weights, "_content", overtaken)
    found = weights.newest()
    assert found.phase == 1 and set(found.tensors["weights"].tolist()) == {1.0}
