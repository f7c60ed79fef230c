"""The newest weights in shared memory: one process writes, any number read, none waits for another."""

from __future__ import annotations

import zlib
from itertools import accumulate, pairwise
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch import Tensor

from ..training.policy_buffer import Version

EMPTY = -1
COUNT, PHASE, STEP, CHECKSUM = range(4)  # entries in the header of a slot


class SharedWeights:
    """Two slots, used in turn: a version is written into the one that readers are not sent to, and then published.

    A reader whose slot is overwritten while it copies finds that the count has changed or that the checksum does not
    match, and reads again. So no reader acts with a mixture of two versions, whatever the machine's memory order, and
    there is no lock that a killed process could leave locked.
    """

    def __init__(self, context: BaseContext, like: Version) -> None:
        """like: a version whose tensors have the names, shapes and types of all later ones."""
        self.layout = [(name, tuple(x.shape), x.dtype) for name, x in like.tensors.items()]
        sizes = (-(-x.numel() * x.element_size() // 16) * 16 for x in like.tensors.values())  # aligned for every type
        ends = list(accumulate(sizes, initial=0))
        self.spans = list(pairwise(ends))
        self.size = ends[-1]
        self.bytes: Any = context.RawArray("B", 2 * self.size)
        self.header: Any = context.RawArray("q", [EMPTY] * 8)
        self.version_count: Any = context.RawValue("q", EMPTY)  # how many versions were published before the newest
        self.closed: Any = context.RawValue("b", 0)  # 1: actors have to end

    def publish(self, version: Version) -> None:
        """Make a version the newest one. Called by one process, with a version it has not published."""
        count = self.version_count.value + 1
        slot, offset = count % 2, 4 * (count % 2)
        self.header[offset + COUNT] = EMPTY
        content = torch.frombuffer(self._content(slot), dtype=torch.uint8)
        for (begin, _end), x in zip(self.spans, version.tensors.values(), strict=True):
            flat = x.detach().cpu().contiguous().view(-1).view(torch.uint8)
            content[begin : begin + len(flat)] = flat
        self.header[offset + PHASE], self.header[offset + STEP] = version.phase, version.gradient_step
        self.header[offset + CHECKSUM] = zlib.crc32(self._content(slot))
        self.header[offset + COUNT] = count
        self.version_count.value = count

    def newest(self) -> Version:
        """Return a copy of the newest version."""
        while True:
            count = self.version_count.value
            offset = 4 * (count % 2)
            before = self.header[offset : offset + 4]
            content = bytearray(self._content(count % 2))
            consistent = before[COUNT] == count == self.header[offset + COUNT]
            if consistent and zlib.crc32(content) == before[CHECKSUM]:
                return Version(before[PHASE], before[STEP], self._tensors(content))

    @property
    def newest_phase(self) -> int:
        """Number of the newest version, without a copy; it may be a moment behind."""
        phase: int = self.header[4 * (self.version_count.value % 2) + PHASE]
        return phase

    def _content(self, slot: int) -> memoryview:
        return memoryview(self.bytes).cast("B")[slot * self.size : (slot + 1) * self.size]

    def _tensors(self, copy: bytearray) -> dict[str, Tensor]:
        """The tensors that a copy of a slot holds."""
        content, tensors = torch.frombuffer(copy, dtype=torch.uint8), {}
        for (name, shape, dtype), (begin, _) in zip(self.layout, self.spans, strict=True):
            count = int(torch.Size(shape).numel()) * dtype.itemsize
            # memory of its own: products may round differently where it begins at another address within a cache line
            tensors[name] = content[begin : begin + count].view(dtype).view(shape).clone()
        return tensors
