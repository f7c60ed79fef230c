"""Mean lag of a lag model with a full buffer, and over a run, in which the buffer has to fill first."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import UserError
from ..lag import LagModel
from ..spec import RunSpec

LOOKS = 256  # phases that are looked at, of the many with a full buffer
STRIDE = 101  # phases between two looks: a prime, so that a model with a period below it is seen in all of it
WIDEST = 1_024  # versions of a buffer that are looked at; a wider one promises more still


class ExpectedLag(NamedTuple):
    """Lags in phases, of the version that a row begins with."""

    mean: float | None  # once the buffer is full; None where that comes of a simulation
    cap: int  # the largest that can come up, or that a rule of the pipeline allows
    expected: float | None  # mean over the phases of the run's budget


def expected_lag(spec: RunSpec, model: LagModel) -> ExpectedLag | None:
    """None where the model knows neither its probabilities before the run nor a bound."""
    capacity = min(spec.capacity, WIDEST)
    full = range(capacity, capacity + LOOKS * STRIDE, STRIDE)
    step = max(1, spec.budget_phases // LOOKS) | 1
    try:
        later = [_lags(model, phase, capacity) for phase in full]
        of_run = [_lags(model, phase, capacity) for phase in range(spec.fill_phases, spec.phases, step)]
    except (NotImplementedError, UserError):
        bound = None if spec.demand is None else model.bound(spec.demand)
        return None if bound is None else ExpectedLag(None, bound, None)
    cap = max(max(lags) for lags in later)
    expected = [0.0 if spec.warm(spec.fill_phases + i * step) else _mean(lags) for i, lags in enumerate(of_run)]
    return ExpectedLag(sum(map(_mean, later)) / len(later), cap, sum(expected) / len(expected))


def _lags(model: LagModel, phase: int, capacity: int) -> dict[int, float]:
    return {phase - version: p for version, p in model.probabilities(phase, capacity).items()}


def _mean(lags: dict[int, float]) -> float:
    return sum(lag * p for lag, p in lags.items())
