"""Every version in the buffer is equally likely."""

from __future__ import annotations

from dataclasses import dataclass

from staleharness.lag import LAGS, Assignment, Draw, LagModel, held, keep


@LAGS.register("uniform")
@dataclass(frozen=True)
class Uniform(LagModel):
    """Every version in the buffer is equally likely; mean lag (K − 1)/2."""

    paper = "VACO, arXiv 2603.01365, Algorithm 1"

    def assign(self, draw: Draw) -> Assignment:
        return keep(draw.phase - draw.generator().integers(0, len(draw.held), size=draw.slots))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        versions = held(phase, capacity)
        return dict.fromkeys(versions, 1.0 / len(versions))
