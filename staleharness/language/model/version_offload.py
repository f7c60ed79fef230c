"""Storage of versions of a language model's weights: on its GPU, where they act together, and copied to the host."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from ...training.policy_buffer import Version
from .fused_forward import Weights


class ResidentVersions:
    """Versions of the policy that stay on its device, in one tensor [capacity, ...] for each of their weights.

    load: returns a version's weights on the device; called once for as long as the version stays. When all slots are
    taken, the version farthest in phase is replaced: versions are read in ascending order to decode and in descending
    order to score, so that it is the one whose turn is last.
    """

    def __init__(self, capacity: int, load: Callable[[Version], Weights]) -> None:
        self.capacity, self.load = capacity, load
        self.slots: list[Version | None] = [None] * capacity
        self.stacks: Weights = {}

    @torch.no_grad()
    def weights(self, versions: Sequence[Version]) -> Weights:
        """Return weights of one version [...], or of several different ones [K, ...] in their order: views until the
        next call.

        Raises:
            ValueError: a version occurs twice, or there are more versions than slots.
        """
        if len({id(v) for v in versions}) < len(versions):
            raise ValueError(f"a version occurs twice in phases {[v.phase for v in versions]}; ask for each once")
        if len(versions) > self.capacity:
            raise ValueError(f"{len(versions)} versions do not fit into {self.capacity} slots")
        slots = [self._slot(version, versions) for version in versions]
        if len(slots) == 1:
            return {name: stack[slots[0]] for name, stack in self.stacks.items()}
        self._arrange(versions)
        return {name: stack[: len(slots)] for name, stack in self.stacks.items()}

    def _arrange(self, versions: Sequence[Version]) -> None:
        """Exchange slots until the i-th version is in slot i: a copy of one tensor at a time, not of all versions."""
        for i, version in enumerate(versions):
            old = self._find(version)
            if old is None or old == i:
                continue
            for stack in self.stacks.values():
                before = stack[i].clone()
                stack[i].copy_(stack[old])
                stack[old].copy_(before)
            self.slots[i], self.slots[old] = version, self.slots[i]

    def _find(self, version: Version) -> int | None:
        return next((i for i, resident in enumerate(self.slots) if resident is version), None)

    def _slot(self, version: Version, requests: Sequence[Version]) -> int:
        """Return the slot of a version; if absent, it is loaded into a slot that no request has."""
        if (slot := self._find(version)) is not None:
            return slot
        free = [i for i, resident in enumerate(self.slots) if not any(resident is v for v in requests)]
        distance = [math.inf if (old := self.slots[i]) is None else abs(old.phase - version.phase) for i in free]
        slot = free[distance.index(max(distance))]
        weights = self.load(version)
        if not self.stacks:
            self.stacks = {name: w.new_empty((self.capacity, *w.shape)) for name, w in weights.items()}
        for name, w in weights.items():
            self.stacks[name][slot].copy_(w)
        self.slots[slot] = version
        return slot


COPIER = ThreadPoolExecutor(1, "snapshot")


class HostCopies(Mapping[str, Tensor]):
    """Tensors by name as they are now, on their way to the host; reading one waits until all have arrived.

    They are first copied on the GPU, which takes milliseconds, and leave it from there: a transfer of 2 GB took 1.0 s
    on an H100 of a virtual machine, and through pinned memory 1.3 s (docs/log.md).
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._names = list(tensors)
        on_device = {name: x.detach().clone() for name, x in tensors.items()}
        device = next(iter(on_device.values())).device
        ready = torch.cuda.current_stream(device).record_event() if device.type == "cuda" else None
        self._copies = COPIER.submit(_to_host, on_device, device, ready)

    def wait(self) -> None:
        """Return once all copies are there. Raises what copying raised."""
        self._copies.result()

    def __getitem__(self, name: str) -> Tensor:
        return self._copies.result()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _to_host(on_device: dict[str, Tensor], device: torch.device, ready: torch.cuda.Event | None) -> dict[str, Tensor]:
    stream = contextlib.nullcontext() if ready is None else torch.cuda.stream(torch.cuda.Stream(device))
    with stream:
        if ready is not None:
            ready.wait()
        return {name: x.to("cpu", copy=True) for name, x in on_device.items()}
