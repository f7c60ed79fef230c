"""A kind of task without torch, a simulator or anything to learn: a vector that each phase stirs with past vectors.
What matters is that every bit of a phase depends on every phase before it, and that a phase takes a millisecond.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from staleharness.base.streams import stream
from staleharness.spec import RunSpec
from staleharness.task import ENVS, Task
from staleharness.training.loop import Simulation
from staleharness.training.phase_record import PhaseData, Scores
from staleharness.training.policy_buffer import Version

Floats = NDArray[np.float64]
SIZE, ROWS = 8, 4


@dataclass(frozen=True)
class ToySpec(RunSpec):
    """A phase is one step."""

    steps: int = 60
    evaluations: int = 3
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {}}

    @property
    def steps_per_phase(self) -> int:
        return 1

    @property
    def size(self) -> str:
        return f"{self.steps} phases"


@ENVS.register("toy")
class Toy(Task):
    """Numbers that are stirred."""

    kind: ClassVar[str] = "toy"
    settings: ClassVar[type[RunSpec]] = ToySpec
    ids: ClassVar[dict[str, str]] = {"toy": "numbers that are stirred"}

    @classmethod
    def simulation(cls, spec: RunSpec, folder: Path) -> ToySimulation:
        return ToySimulation(spec, cls())


class Finite(np.ndarray):
    """Log-probabilities with the one method that the loop calls."""

    def isfinite(self) -> Any:
        return np.isfinite(self)


class ToyLearner:
    """Policy and learner in one; of what it trains on it records only how much."""

    rows = first_lags = last_lags = None
    first_epoch_decisions = ROWS

    def __init__(self, spec: RunSpec) -> None:
        self.x: Floats = stream(spec.seed, "init").normal(size=SIZE)
        self.gradient_steps = 0

    def snapshot(self, phase: int, gradient_step: int) -> Version:
        return Version(phase, gradient_step, {"x": self.x.tolist()})  # type: ignore[dict-item]

    def train(self, data: Floats, phase: int) -> tuple[dict[str, Any], dict[str, float]]:
        self.x = np.tanh(self.x + data.mean(0))
        self.gradient_steps += 1
        return {"x": float(self.x[0]), "norm": float(np.linalg.norm(self.x))}, {}

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x.tolist(), "gradient_steps": self.gradient_steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.x, self.gradient_steps = np.array(state["x"]), state["gradient_steps"]


class ToySimulation(Simulation[Floats]):
    def __init__(self, spec: RunSpec, task: Task) -> None:
        super().__init__(spec, task)
        self.policy = self.learner = ToyLearner(spec)  # type: ignore[assignment]

    def collect(self, phase: int) -> PhaseData[Floats]:
        versions = self.lags.draw(phase, ROWS).starts
        vectors = np.array([self.buffer[int(v)].tensors["x"] for v in versions])
        vectors += stream(self.spec.seed, "action", phase).normal(size=vectors.shape)
        histogram = np.bincount(phase - versions, minlength=self.spec.capacity).tolist()
        metrics = {"lag_histogram": histogram, "lag_mean": float((phase - versions).mean())}
        return PhaseData(vectors, np.zeros((ROWS, 1)).view(Finite), metrics, {})  # type: ignore[arg-type]

    def evaluate(self) -> Scores:
        scores = {way: [float(self.policy.x.sum())] for way in ("sampled", "deterministic")}  # type: ignore[attr-defined]
        return Scores(scores, {way: [1] for way in scores}, 1)
