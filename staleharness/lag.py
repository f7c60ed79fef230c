"""Lag models: which past version each actor uses. `(phase, slots, rng) -> versions`, and nothing else.

The version of the policy at the start of phase t is t, and the buffer holds the newest K of them. A model is written
`uniform`, `oldest`, `fixed:<l>` or `geometric:<decay>`; `/sync:<M>` behind it adds a periodic hard sync, and `sync:<M>`
alone is what periodic syncs do to actors that fetch nothing in between.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .base.parsing import whole_number
from .errors import UserError

FORMS = (
    "uniform, oldest, fixed:<phases>, geometric:<decay> or sync:<phases>; uniform/sync:<phases> is both; "
    "inflight:<tokens> for language tasks"
)


class LagModel(Protocol):
    """A rule that assigns versions. `probabilities` says what mixture it draws from."""

    def assign(self, phase: int, slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Versions [slots], each in the buffer at `phase`."""
        ...

    def probabilities(self, phase: int) -> dict[int, float]:
        """Version -> probability of being assigned at `phase`."""
        ...

    def oldest(self, phase: int) -> int:
        """The version that even an actor in the middle of an episode may not be behind: 0, or the last sync."""
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

    def oldest(self, phase: int) -> int:
        return 0


@dataclass(frozen=True)
class Fixed:
    """Always `lag` phases behind, as far as that many phases have passed (Cleanba is `fixed:1`, `oldest` is K − 1)."""

    lag: int

    def assign(self, phase: int, slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return np.full(slots, phase - min(self.lag, phase), dtype=np.int64)

    def probabilities(self, phase: int) -> dict[int, float]:
        return {phase - min(self.lag, phase): 1.0}

    def oldest(self, phase: int) -> int:
        return 0


@dataclass(frozen=True)
class Geometric:
    """P(lag = j) ∝ decay^j over the buffer: recent data are used more often; decay 1 is `uniform`."""

    decay: float
    capacity: int

    def assign(self, phase: int, slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
        share = self._shares(phase)
        return phase - rng.choice(len(share), size=slots, p=share)

    def probabilities(self, phase: int) -> dict[int, float]:
        return {phase - lag: p for lag, p in enumerate(self._shares(phase).tolist()) if p > 0.0}

    def oldest(self, phase: int) -> int:
        return 0

    def _shares(self, phase: int) -> NDArray[np.float64]:
        lags = np.arange(min(phase + 1, self.capacity), dtype=np.float64)
        weight = np.power(self.decay, lags)
        share: NDArray[np.float64] = weight / weight.sum()
        return share


@dataclass(frozen=True)
class Synced:
    """A hard sync every `period` phases: all actors get the newest version and forget what came before.

    Between syncs `model` draws as if the run had begun with the last one, so no lag exceeds phase mod period.
    """

    model: LagModel
    period: int

    def assign(self, phase: int, slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return self.oldest(phase) + self.model.assign(phase % self.period, slots, rng)

    def probabilities(self, phase: int) -> dict[int, float]:
        since = self.model.probabilities(phase % self.period)
        return {self.oldest(phase) + version: p for version, p in since.items()}

    def oldest(self, phase: int) -> int:
        return phase - phase % self.period


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
    versions: NDArray[np.int64] = np.minimum(starts[:, None] + np.arange(stretches), phase)
    return versions


def parse_lag(text: str, capacity: int) -> LagModel:
    """`uniform`, `oldest`, `fixed:<l>` with l < capacity, `geometric:<decay>`, each with or without `/sync:<M>`, or
    `sync:<M>` alone, which is `fixed:<M - 1>/sync:<M>`. Raises `UserError`.
    """
    model, slash, sync = text.partition("/")
    if not slash and model.startswith("sync:"):
        period = _period(model, text)
        return Synced(_fixed(period - 1, capacity, text), period)
    if not slash and (match := re.fullmatch(r"inflight:(\d+)", model)):
        every = whole_number(match.group(1), "LAG=inflight:")
        if every < 1:
            raise UserError("LAG=inflight:0 never samples a token; give inflight:<tokens> with at least 1")
        return Inflight(capacity, every)
    if not slash:
        return _drawn(model, capacity, text)
    return Synced(_drawn(model, capacity, text), _period(sync, text))


def _drawn(model: str, capacity: int, text: str) -> LagModel:
    if model == "uniform":
        return Uniform(capacity)
    if model == "oldest":
        return Fixed(capacity - 1)
    if match := re.fullmatch(r"fixed:(\d+)", model):
        return _fixed(whole_number(match.group(1), "LAG=fixed:"), capacity, text)
    if match := re.fullmatch(r"geometric:(\d*\.?\d+)", model):
        decay = float(match.group(1))
        if not 0.0 < decay <= 1.0:
            raise UserError(f"LAG={text}: the decay must be above 0 and at most 1, not {match.group(1)}")
        return Geometric(decay, capacity)
    raise UserError(f"LAG={text!r} is not a lag model; give {FORMS}")


def _fixed(lag: int, capacity: int, text: str) -> Fixed:
    if lag >= capacity:
        raise UserError(
            f"LAG={text} needs a buffer of at least K={lag + 1}; K={capacity} holds lags 0 to {capacity - 1}"
        )
    return Fixed(lag)


def _period(sync: str, text: str) -> int:
    match = re.fullmatch(r"sync:(\d+)", sync)
    if match is None:
        raise UserError(f"LAG={text!r} is not a lag model; give {FORMS}")
    period = whole_number(match.group(1), "LAG=sync:")
    if period < 1:
        raise UserError(f"LAG={text}: a sync comes every 1 phase or more, not every {period}")
    return period
