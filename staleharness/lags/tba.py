"""TBA: a buffer that is filled in rounds, from which the latest round is drawn most of the time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from staleharness.lag import LAGS, Assignment, Draw, LagModel, held, keep


@LAGS.register("tba")
@dataclass(frozen=True)
class TBA(LagModel):
    """Rounds between two syncs: the latest most of the time, or else any that the buffer holds.

    Searchers and trainer sync every `k` phases. With probability `m` a row comes from the latest round that the trainer
    has, k to 2k − 1 phases old; otherwise from any round that the buffer holds, each equally likely.

    Leaves out: that rows of earlier rounds are drawn by their reward, and repeatedly (mechanism=replay does that).
    """

    paper = "Trajectory Balance with Asynchrony, arXiv 2503.18929"

    k: int = 2  # phases
    m: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("k", self.k >= 1, "at least 1 phase")
        self.require("m", 0 <= self.m <= 1, "from 0 to 1")

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
