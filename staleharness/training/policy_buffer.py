"""The policy buffer: the newest K versions of the policy, each with the statistics it acted with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class Version:
    """One past policy: weights **and** observation statistics, frozen when it was stored."""

    phase: int  # training phases done when it was stored: its version
    gradient_step: int  # optimiser steps done when it was stored
    tensors: Mapping[str, Tensor]  # all that the policy needs to act


class PolicyBuffer:
    """The newest `capacity` versions, first in, first out."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._versions: dict[int, Version] = {}

    def push(self, version: Version) -> None:
        """Store a version; the one stored earliest leaves when the buffer is full."""
        self._versions[version.phase] = version
        while len(self._versions) > self.capacity:
            del self._versions[min(self._versions)]

    def __getitem__(self, phase: int) -> Version:
        return self._versions[phase]

    def __contains__(self, phase: int) -> bool:
        return phase in self._versions

    @property
    def newest(self) -> Version:
        return self._versions[max(self._versions)]

    def in_host_memory(self) -> list[Version]:
        """Return versions whose tensors are in the host's memory and can be read without waiting."""
        return [v for v in self._versions.values() if isinstance(v.tensors, dict)]

    def state_dict(self) -> list[dict[str, Any]]:
        return [
            {"phase": v.phase, "gradient_step": v.gradient_step, "tensors": dict(v.tensors)}
            for _, v in sorted(self._versions.items())
        ]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        self._versions = {item["phase"]: Version(**item) for item in state}

    def to(self, device: torch.device) -> None:
        """Move all versions to a device, as after loading a checkpoint, whose tensors are on the CPU."""
        for phase, v in self._versions.items():
            self._versions[phase] = replace(v, tensors={name: x.to(device) for name, x in v.tensors.items()})
