"""The toy again, with a phase that takes a while and no processor: time to do something to it. Where the environment
has `STALEHARNESS_NAP_UNTIL`, it sleeps on in phase 20 until that file exists.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from toy_kind import Toy, ToySimulation, ToySpec

from staleharness.spec import RunSpec
from staleharness.task import ENVS

PHASE = 20


@dataclass(frozen=True)
class NappingSpec(ToySpec):
    """Duration of a phase in seconds, and the phase at which the process ends itself."""

    nap: float = 0.05
    dies_at: int = -1


@ENVS.register("napping")
class Napping(Toy):
    """Numbers that are stirred now and then."""

    kind: ClassVar[str] = "napping"
    settings: ClassVar[type[RunSpec]] = NappingSpec
    ids: ClassVar[dict[str, str]] = {"napping": "numbers that are stirred now and then"}

    @classmethod
    def simulation(cls, spec: RunSpec, folder: Path) -> ToySimulation:
        return NappingSimulation(spec, cls())


class NappingSimulation(ToySimulation):
    def collect(self, phase: int) -> Any:
        time.sleep(self.spec.nap)  # type: ignore[attr-defined]
        gate = os.environ.get("STALEHARNESS_NAP_UNTIL", "/")
        while phase == PHASE and not os.path.exists(gate):
            time.sleep(0.02)
        if phase == self.spec.dies_at:  # type: ignore[attr-defined]
            os._exit(3)
        return super().collect(phase)
