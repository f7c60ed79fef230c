"""Versions that a lag model assigns, with the noise of a stream that is named here and not by the package."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from staleharness.base.streams import stream
from staleharness.lag import Assignment, Draw, parse_lag


@dataclass(frozen=True)
class _Drawn(Draw):
    def generator(self) -> np.random.Generator:
        return stream(self.seed, "assignment", *self.key)


def assignment_of(
    lag: str, capacity: int, phase: int, slots: int, *index: int, seed: int = 0, length: int = 1
) -> Assignment:
    """Versions of `slots` rows from the stream (seed, "assignment", phase, *index)."""
    return parse_lag(lag, capacity).assign(_Drawn(phase, slots, capacity, length, seed, (phase, *index)))
