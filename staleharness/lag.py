"""Lag models: which past version each actor uses. `(phase, slots, rng) -> versions`, and nothing else.

The version of the policy at the start of phase t is t, and the buffer holds the newest K of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .errors import UserError
from .parsing import whole_number


class LagModel(Protocol):
    """A rule that assigns versions. `probabilities` says what mixture it draws from."""

    def assign(self, phase: int, slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Versions [slots], each in the buffer at `phase`."""
        ...

    def probabilities(self, phase: int) -> dict[int, float]:
        """Version -> probability of being assigned at `phase`."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Every version in the buffer is equally likely (VACO, arXiv 2603.01365, Algorithm 1); mean lag (K − 1)/2."""

    capacity: int

    def assign(self, phase: int, slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return phase - rng.integers(0, min(phase + 1, self.capacity), size=slots)

    def probabilities(self, phase: int) -> dict[int, float]:
        held = min(phase + 1, self.capacity)
        return dict.fromkeys(range(phase - held + 1, phase + 1), 1.0 / held)


@dataclass(frozen=True)
class Fixed:
    """Always `lag` phases behind, as far as that many phases have passed (Cleanba is `fixed:1`)."""

    lag: int

    def assign(self, phase: int, slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.full(slots, phase - min(self.lag, phase), dtype=np.int64)

    def probabilities(self, phase: int) -> dict[int, float]:
        return {phase - min(self.lag, phase): 1.0}


def parse_lag(text: str, capacity: int) -> LagModel:
    """`uniform` or `fixed:<l>` with l < capacity. Raises `UserError`."""
    if text == "uniform":
        return Uniform(capacity)
    if match := re.fullmatch(r"fixed:(\d+)", text):
        lag = whole_number(match.group(1), "LAG=fixed:")
        if lag >= capacity:
            raise UserError(
                f"LAG=fixed:{lag} needs a buffer of at least K={lag + 1}; K={capacity} holds lags 0 to {capacity - 1}"
            )
        return Fixed(lag)
    if match := re.fullmatch(r"inflight:(\d+)", text):
        every = whole_number(match.group(1), "LAG=inflight:")
        if every < 1:
            raise UserError("LAG=inflight:0 never samples a token; give inflight:<tokens> with at least 1")
        return Inflight(capacity, every)
    raise UserError(f"LAG={text!r} is not a lag model; give uniform or fixed:<phases>")


@dataclass(frozen=True)
class Inflight(Uniform):
    """Weights change inside a sequence: it starts with any version in the buffer and takes the next one every
    `every` tokens, up to the newest, as in-flight weight updates do (PipelineRL). Language tasks only."""

    every: int = 64  # tokens


def stretch_length(model: LagModel) -> int | None:
    """Tokens that one version samples before the next takes over; None where a sequence keeps its version."""
    return model.every if isinstance(model, Inflight) else None


def along(model: LagModel, starts: NDArray[np.int64], phase: int, length: int) -> NDArray[np.int64]:
    """Versions [slots, S] of the S stretches of sequences of up to `length` tokens that begin with `starts`."""
    every = stretch_length(model)
    stretches = 1 if every is None else -(-length // every)
    return np.minimum(starts[:, None] + np.arange(stretches), phase)
