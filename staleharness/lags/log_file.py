"""Lags drawn from the log of another system."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from staleharness.base.files import digest, stamp
from staleharness.base.reference_results import portable_name, results_path
from staleharness.errors import UserError, shorten
from staleharness.lag import LAGS, Assignment, Draw, LagModel, held, keep, option
from staleharness.logs.lag_log_reader import read_unconverted

MAX_LAG = 1_000_000  # phases; even the largest buffer, `MAX_VERSIONS`, holds only smaller lags


class LoggedLags(NamedTuple):
    """P(lag = j) of a row for the lags 0, 1, ... n − 1 in phases, and the largest lag in the log."""

    shares: NDArray[np.float64]
    largest: int


@LAGS.register("log")
@dataclass(frozen=True)
class Log(LagModel):
    """Each row's lag is drawn from the lags in a log: CSV, JSON lines, a TensorBoard event file, or a trace.

    The lag column is recognised by the name that its system gives it, as in `staleharness advise`; `column` names
    another one. One version of the log is one phase, unless `per_phase` gives the number of versions, gradient steps or
    samples of the log per phase. A lag between two whole numbers is rounded up or down at random, so that the mean is
    preserved. A row that would be older than the first version begins with the first version. A log with lags that the
    buffer cannot hold is refused; `tail=cut` draws from the other lags instead. A run's id depends on the file's
    content.

    Leaves out: which rows were old, such as long ones; and, if a log has only means over training steps, the spread
    within a step.
    """

    file: str
    per_phase: float = option(0.0, least=0)  # units of the log per phase; 0: a version is a phase
    column: str = ""
    tail: Literal["refuse", "cut"] = "refuse"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("file", "column"):
            text = getattr(self, name)
            valid = (bool(text) or name == "column") and not set(text) & set(" ,[]")
            self.require(name, valid, "text without blanks, , [ or ]")
        object.__setattr__(self, "file", portable_name(self.file))  # a run has its own working directory

    @property
    def path(self) -> Path:
        return results_path(self.file)

    @property
    def identity(self) -> str:
        self._require_file()
        return self.text.replace(self.file, digest(self.path)[:16], 1)

    def check(self, capacity: int) -> None:
        self._require_file()
        lags = self._lags()
        if lags.largest < capacity:
            return
        inside = float(lags.shares[:capacity].sum())
        if self.tail == "cut" and inside > 0:
            return
        remedies = [f"K={lags.largest + 1}"] if lags.largest < MAX_LAG else []
        remedies += [f"tail=cut for the {inside:.1%} within"] if inside > 0 else []
        remedies = remedies or ["a larger per_phase, since no buffer holds them"]
        raise UserError(
            f"LAG={shorten(self.text)} has lags of up to {lags.largest:,} phases, and K={capacity} holds lags 0 to "
            f"{capacity - 1}; give {', or '.join(remedies)}"
        )

    def assign(self, draw: Draw) -> Assignment:
        share = self._within(draw.capacity)
        lag = draw.generator().choice(len(share), size=draw.slots, p=share)
        return keep(np.maximum(draw.phase - lag, 0))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        share = self._within(capacity)
        by_version = np.bincount(np.maximum(phase - np.arange(len(share)), 0), share, phase + 1)
        return {v: float(by_version[v]) for v in held(phase, capacity) if by_version[v] > 0}

    def _within(self, capacity: int) -> NDArray[np.float64]:
        """Return P(lag = j) over the lags that a buffer holds."""
        share = self._lags().shares[:capacity]
        return np.asarray(share / share.sum())

    def _lags(self) -> LoggedLags:
        return _read(str(self.path), stamp(self.path), self.column, self.per_phase)

    def _require_file(self) -> None:
        if not self.path.is_file():
            raise UserError(f"LAG={self.text}: there is no such file")


@functools.lru_cache(maxsize=8)
def _read(file: str, content: tuple[str, int, int, int], column: str, per_phase: float) -> LoggedLags:
    """Read a log once; `content` is the file's stamp, so that a changed file is read again."""
    log = read_unconverted(file, f"lag={column}" if column else None, over="rows")
    if log.unit != "versions" and not per_phase:
        unit = log.unit.replace("_", " ")
        raise UserError(f"LAG=log: {log.file} has lags in {unit}; give per_phase=N, the {unit} of a phase")
    lags = log.lags / (per_phase or 1.0)
    low = np.floor(lags)
    above = np.where(low > lags - 1e-9, 0.0, lags - low)  # share of the rows with each lag that is rounded up
    integers = np.concatenate([low, low + 1])
    weights = np.concatenate([log.weights * (1 - above), log.weights * above])
    inside = (integers < MAX_LAG) & (weights > 0)
    counts = np.bincount(integers[inside].astype(np.int64), weights[inside])
    shares: NDArray[np.float64] = np.asarray(counts / weights.sum(), dtype=np.float64)
    shares.setflags(write=False)
    return LoggedLags(shares, int(integers[weights > 0].max()))
