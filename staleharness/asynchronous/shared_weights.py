"""The newest weights in shared memory: one process writes, any number read, nobody waits for another."""

from __future__ import annotations

import zlib
from itertools import pairwise
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch import Tensor

from ..training.policy_buffer import Version

EMPTY = -1
COUNT, PHASE, STEP, CHECKSUM = range(4)  # of what a place says of its content


class SharedWeights:
    """Two places, used in turn: a version is written into the one that nobody is sent to, and announced afterwards.

    A reader that is so slow that its place is written anew meanwhile finds another count, or another checksum, behind
    its copy than before, and reads again. So it never acts with half of one version and half of another, on whatever
    machine, and no lock exists that a killed process could take along.
    """

    def __init__(self, context: BaseContext, like: Version) -> None:
        """like: a version whose tensors have the names, shapes and types of all later ones."""
        self.layout = [(name, tuple(x.shape), x.dtype) for name, x in like.tensors.items()]
        ends = [0]
        for x in like.tensors.values():
            ends.append(ends[-1] + -(-x.numel() * x.element_size() // 16) * 16)  # aligned for every type
        self.spans = list(pairwise(ends))
        self.size = ends[-1]
        self.bytes: Any = context.RawArray("B", 2 * self.size)
        self.header: Any = context.RawArray("q", [EMPTY] * 8)
        self.version_count: Any = context.RawValue("q", EMPTY)  # how many versions were published before the newest
        self.closed: Any = context.RawValue("b", 0)  # actors are to end

    def publish(self, version: Version) -> None:
        """Make a version the newest one. Called by one process, with a version it has not published."""
        count = self.version_count.value + 1
        place, offset = count % 2, 4 * (count % 2)
        self.header[offset + COUNT] = EMPTY
        content = torch.frombuffer(self._content(place), dtype=torch.uint8)
        for (begin, _end), x in zip(self.spans, version.tensors.values(), strict=True):
            flat = x.detach().cpu().contiguous().view(-1).view(torch.uint8)
            content[begin : begin + len(flat)] = flat
        self.header[offset + PHASE], self.header[offset + STEP] = version.phase, version.gradient_step
        self.header[offset + CHECKSUM] = zlib.crc32(self._content(place))
        self.header[offset + COUNT] = count
        self.version_count.value = count

    def newest(self) -> Version:
        """A copy of the newest version."""
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

    def _content(self, place: int) -> memoryview:
        return memoryview(self.bytes).cast("B")[place * self.size : (place + 1) * self.size]

    def _tensors(self, copy: bytearray) -> dict[str, Tensor]:
        """The tensors that a copy of a place holds."""
        content, tensors = torch.frombuffer(copy, dtype=torch.uint8), {}
        for (name, shape, dtype), (begin, _) in zip(self.layout, self.spans, strict=True):
            count = int(torch.Size(shape).numel()) * dtype.itemsize
            # memory of its own: products may round otherwise where it begins at another address within a cache line
            tensors[name] = content[begin : begin + count].view(dtype).view(shape).clone()
        return tensors
