from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import importance_ratio


@ALGORITHMS.register("cispo")
@dataclass(frozen=True)
class CISPO(Algorithm):
    """CISPO: clips the importance weight instead of the objective, so that every token keeps a gradient.

    Maximises  sg(clip(r, low, high)) A log π  (MiniMax 2025), r = π/μ, or π/π_prox with `anchor = proximal`, which
    treats stale data as if the learner at the start of the phase had sampled them.

    The paper has in effect no lower bound, and does not state the upper one. As a bound on r itself, it is 5 in
    ScaleRL, about 4 in slime, 1.272 in open-instruct, 1.2 in verl and 1.1 in ROLL, which also have lower bounds of 0.8
    and 0.9. TRL recommends 5; if `epsilon_high` is not set, r is cut at ε = 0.2. With `low = 0` and the behaviour
    anchor this is `tis` with `cap = high`.
    """

    paper = "MiniMax 2025, arXiv:2506.13585"
    core: ClassVar[bool] = False

    low: float = 0.0  # smallest weight; 0 is no bound
    high: float = 5.0  # largest weight; 0 is no bound
    anchor: Literal["behaviour", "proximal"] = "behaviour"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("low", 0 <= self.low <= 1, "between 0 (no bound) and 1")
        self.require("high", self.high == 0 or self.high >= 1, "0 (no bound) or at least 1")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.anchor == "proximal" else "behaviour"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        anchor = d.proximal_logp if self.anchor == "proximal" else d.behaviour_logp
        ratio = importance_ratio(d.target_logp, anchor).detach()
        weight = ratio.clamp(self.low, self.high or math.inf)
        loss = -weight * d.advantage * d.target_logp
        return PolicyLoss(loss, {"truncated": (weight != ratio).to(ratio.dtype), "importance_weight": weight})
