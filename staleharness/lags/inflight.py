"""Weights change inside a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from staleharness.lag import LAGS, Assignment, Draw, LagModel, held


@LAGS.register("inflight")
@dataclass(frozen=True)
class Inflight(LagModel):
    """A row begins with any version in the buffer and switches to the next every `every` tokens, up to the newest.

    This is what in-flight weight updates do to a completion. Language tasks only.
    """

    paper = "PipelineRL, arXiv 2509.19128"
    within_rows: ClassVar[bool] = True

    every: int  # tokens

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("every", self.every >= 1, "at least 1 token")

    def assign(self, draw: Draw) -> Assignment:
        starts = draw.phase - draw.generator().integers(0, len(draw.held), size=draw.slots)
        stretches = np.arange(-(-draw.length // self.every))
        return Assignment(np.minimum(starts[:, None] + stretches, draw.phase), self.every)

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        versions = held(phase, capacity)
        return dict.fromkeys(versions, 1.0 / len(versions))
