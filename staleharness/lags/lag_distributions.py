"""Distributions of lag over the rows of a phase."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from staleharness.lag import LAGS, Assignment, Draw, DrawnLag, LagModel, held, keep, option


class _UniformStart(LagModel):
    """Draws the version that each row begins with uniformly from the buffer."""

    def starts(self, draw: Draw) -> NDArray[np.int64]:
        """Draw the version [slots] that each row begins with."""
        return draw.phase - draw.generator().integers(0, len(draw.held), size=draw.slots)

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        versions = held(phase, capacity)
        return dict.fromkeys(versions, 1.0 / len(versions))


@LAGS.register("uniform")
@dataclass(frozen=True)
class Uniform(_UniformStart):
    """Every version in the buffer is equally likely; mean lag (K − 1)/2."""

    paper = "VACO, arXiv 2603.01365, Algorithm 1"

    def assign(self, draw: Draw) -> Assignment:
        return keep(self.starts(draw))


@LAGS.register("inflight")
@dataclass(frozen=True)
class Inflight(_UniformStart):
    """Rows begin with a uniformly drawn version and switch to the next one every `every` tokens, up to the newest.

    In-flight weight updates have this effect on a completion. Language tasks only.
    """

    paper = "PipelineRL, arXiv 2509.19128"
    within_rows: ClassVar[bool] = True

    every: int = option(least=1, unit="token")  # tokens

    def assign(self, draw: Draw) -> Assignment:
        stretches = np.arange(-(-draw.length // self.every))
        return Assignment(np.minimum(self.starts(draw)[:, None] + stretches, draw.phase), self.every)


@LAGS.register("geometric")
@dataclass(frozen=True)
class Geometric(DrawnLag):
    """P(lag = j) ∝ decay^j over the buffer: recent versions act more often; decay 1 is `uniform`."""

    decay: float = option(above=0, most=1)

    def weight(self, lag: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.power(self.decay, lag)


@LAGS.register("lognormal")
@dataclass(frozen=True)
class LogNormal(DrawnLag):
    """P(lag = j) = F(j + 1) − F(j) with a log-normal F, truncated at the end of the buffer.

    A row takes a time X in phases, ln X ~ N(ln median, sigma²), and its lag is X rounded down. The tail is as long as
    those of response lengths and of environments that sometimes hang.

    Leaves out: a long row also has many decisions, and so weighs more in a mean over tokens. Where that matters, use a
    lag model that assigns versions to segments, or a trace.
    """

    median: float = option(above=0)  # phases
    sigma: float = option(1.0, above=0)  # standard deviation of ln X

    def weight(self, lag: NDArray[np.float64]) -> NDArray[np.float64]:
        share = np.array([self._below(j + 1.0) - self._below(j) for j in lag])
        if share.sum() > 0:
            return share
        return np.asarray(lag == lag.max(), dtype=np.float64)  # the whole distribution lies beyond the buffer

    def _below(self, phases: float) -> float:
        """P(X < phases)."""
        if phases <= 0:
            return 0.0
        return 0.5 * math.erfc((math.log(self.median) - math.log(phases)) / (self.sigma * math.sqrt(2.0)))


@LAGS.register("poisson")
@dataclass(frozen=True)
class Poisson(DrawnLag):
    """P(lag = j) ∝ e^-m m^j / j!, a Poisson distribution with mean m, truncated at the end of the buffer.

    Rows take equally long, while the learner's updates arrive at random and independently of one another. With a
    buffer well above m the mean lag is m; the results give the actual mean as `lag_mean`.

    Leaves out: rows of different lengths. Rows generated at the same time would also see the same updates.
    """

    mean: float = option(least=0)  # phases

    def weight(self, lag: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.mean == 0:
            return np.asarray(lag == 0, dtype=np.float64)
        log = lag * math.log(self.mean) - np.array([math.lgamma(j + 1.0) for j in lag])
        # scaled to a largest weight of 1: with a large mean, all weights of a small buffer would underflow to 0
        return np.asarray(np.exp(log - log.max()))


@LAGS.register("slow_actors")
@dataclass(frozen=True)
class SlowActors(LagModel):
    """Every `every`-th actor is `lag` phases behind and the others `fast`, as on machines of different speed.

    The same actors are slow in every phase. If `every` divides the number of actors, the share of slow rows is exactly
    1/every. On control an actor is an environment, so a slow actor's data always come from the same environment; on
    language tasks it is a prompt's group.
    """

    lag: int = option(least=0)  # phases
    every: int = option(8, least=1, unit="actor")  # actors
    fast: int = 0  # phases

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("fast", 0 <= self.fast <= self.lag, "from 0 to `lag`")

    def assign(self, draw: Draw) -> Assignment:
        return keep(np.maximum(0, draw.phase - self._lags(draw.slots)))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        versions, counts = np.unique(np.maximum(0, phase - self._lags(self.every)), return_counts=True)
        return {int(v): float(n) / self.every for v, n in zip(versions, counts, strict=True)}

    def check(self, capacity: int) -> None:
        self.require_buffer(self.lag + 1, capacity)

    def _lags(self, slots: int) -> NDArray[np.int64]:
        """Return the lag of each slot [slots]."""
        slow = np.arange(1, slots + 1) % self.every == 0
        return np.where(slow, self.lag, self.fast)


@LAGS.register("tba")
@dataclass(frozen=True)
class TBA(LagModel):
    """Rows of the latest round with probability `m`, otherwise of a random round in the buffer.

    Searchers and trainer sync every `k` phases, which ends a round. With probability `m` a row comes from the latest
    round that the trainer has received, which is k to 2k − 1 phases old; otherwise the round is drawn uniformly from
    those in the buffer.

    Leaves out: TBA draws rows of earlier rounds by their reward, and repeatedly (for repetition, see mechanism=replay).
    """

    paper = "Trajectory Balance with Asynchrony, arXiv 2503.18929"

    k: int = option(2, least=1, unit="phase")  # phases
    m: float = option(0.95, least=0, most=1)

    def assign(self, draw: Draw) -> Assignment:
        share = self.probabilities(draw.phase, draw.capacity)
        versions = np.array(list(share))
        return keep(versions[draw.generator().choice(len(share), size=draw.slots, p=list(share.values()))])

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        latest = max(0, phase - phase % self.k - self.k)
        rounds = [v for v in held(phase, capacity) if v % self.k == 0 and v <= latest]
        share = {version: (1 - self.m) / len(rounds) + self.m * (version == latest) for version in rounds}
        return {version: p for version, p in share.items() if p > 0}

    def check(self, capacity: int) -> None:
        self.require_buffer(2 * self.k, capacity)
