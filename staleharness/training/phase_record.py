"""Report on each phase of a simulation: metrics, wall-clock seconds, and scores where the policy was evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from .sample_ledger import Flow

if TYPE_CHECKING:
    from torch import Tensor

Data = TypeVar("Data")  # input of the learner of a kind of task


class PhaseData(NamedTuple, Generic[Data]):
    """One phase's data, metrics of their collection, and seconds by purpose."""

    data: Data
    behaviour_logp: Tensor  # of the decisions made in this phase
    metrics: dict[str, Any]
    seconds: dict[str, float]
    flow: Flow | None = None  # None: the learner gets what was generated in this phase, all of it and nothing else


@dataclass(frozen=True)
class Scores:
    """The newest policy's evaluation, per mode: `sampled`, `deterministic` (greedy on tokens)."""

    returns: dict[str, list[float]]  # one undiscounted raw return per episode; 1 or 0 per test problem
    lengths: dict[str, list[int]]  # decisions per episode or completion
    steps: int  # decisions that belonged to an episode
    counts: dict[str, int] = field(default_factory=dict)  # of language: unparsed, truncated

    def mean(self, mode: str) -> float:
        return float(np.mean(self.returns[mode]))

    def error(self, mode: str) -> float:
        """Standard error of the mean; 0 for a single value, such as an exact score."""
        returns = self.returns[mode]
        return float(np.std(returns, ddof=1) / len(returns) ** 0.5) if len(returns) > 1 else 0.0


def wilson(right: int, count: int, z: float = 1.959964) -> tuple[float, float]:
    """The Wilson score interval of a proportion (Wilson 1927), 95 % by default."""
    share, square = right / count, z * z
    centre = (share + square / (2 * count)) / (1 + square / count)
    half = z / (1 + square / count) * (share * (1 - share) / count + square / (4 * count**2)) ** 0.5
    return max(0.0, centre - half), min(1.0, centre + half)


@dataclass(frozen=True)
class PhaseRecord:
    """Result of one phase: deterministic metrics, wall-clock seconds, and scores if it was evaluated."""

    metrics: dict[str, Any]
    seconds: dict[str, float]
    scores: Scores | None
    data: Any = None  # the phase's rows, `batch.Rollout` or `batch.Completions`; None unless asked for
