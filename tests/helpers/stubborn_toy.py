"""Toys that are hard to get rid of, for tests of what a lost machine leaves behind.

The first worker that comes to phase 20 of a run writes its process number, and that of Ray's node, into the folder
`$STALEHARNESS_STUBBORN`, stops hearing that its owner is gone, and waits until it is told to go on; then it writes its
phases down there. Without `$STALEHARNESS_STUBBORN` it is as the toy.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

from staleharness.spec import RunSpec
from staleharness.task import ENVS
from staleharness.training.loop import PhaseData

sys.path.append(str(Path(__file__).parent))  # a worker on another machine has not the tests' path
from toy_kind import Toy, ToySimulation

PHASE = 20


@ENVS.register("stubborn")
class Stubborn(Toy):
    """Numbers that are stirred, by who does not let go."""

    ids: ClassVar[dict[str, str]] = {"stubborn": "numbers that are stirred on and on"}

    @classmethod
    def simulation(cls, spec: RunSpec, folder: Path) -> ToySimulation:
        return StubbornSimulation(spec, cls())


class StubbornSimulation(ToySimulation):
    chosen = False

    def __init__(self, spec: RunSpec, task: Stubborn) -> None:
        super().__init__(spec, task)
        print("GPUs:", os.environ.get("CUDA_VISIBLE_DEVICES", "all"), "threads:", os.environ.get("OMP_NUM_THREADS"))

    def collect(self, phase: int) -> PhaseData[Any]:
        place = Path(os.environ.get("STALEHARNESS_STUBBORN", "/nowhere"))
        if phase == PHASE and place.is_dir():
            self.chosen = _first(place, f"seed{self.spec.seed}")
            if self.chosen:
                multiprocessing.parent_process().is_alive = lambda: True  # type: ignore[union-attr, method-assign]
                while not (place / "go").exists():
                    time.sleep(0.02)
        if self.chosen:
            with open(place / "orphan.txt", "a") as diary:
                diary.write(f"{phase}\n")
        return super().collect(phase)


def _first(place: Path, name: str) -> bool:
    """Return whether this process is the first to write its place."""
    said = json.dumps({"pid": os.getpid(), "raylet": int(os.environ.get("RAY_RAYLET_PID", 0))})
    (place / f"{name}.{os.getpid()}").write_text(said)
    try:
        os.link(place / f"{name}.{os.getpid()}", place / f"{name}.first")
    except FileExistsError:
        return False
    return True
