from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, importance_ratio
from staleharness.weights import truncated


@ALGORITHMS.register("aspo")
@dataclass(frozen=True)
class ASPO(Algorithm):
    """ASPO: positive advantages are weighted with 1/r in place of r, so that unlikely good tokens pull harder.

    Maximises  m sg(u) A log π: where A > 0, u = min(1/r, cap) and m = 0 beyond r = 1 + ε_high; where A < 0, u =
    min(r, cap) and m = 0 below r = 1 − ε, as in PPO with a dual clip that keeps the gradient (Wang et al. 2025). The
    idea: with r a token that has become more likely pulls the more, which feeds itself.

    The cap is 3, ε 0.2. Archer2.0 (verl/trainer/ppo/core_algos.py:541 at b08d963) has 0.4 on the fifth of the tokens
    with the highest entropy; decisions have no entropy here, so all have `clip`. r = π/μ, or π/π_prox with `anchor =
    proximal`, as there. 1/r is no importance weight: at high lag the estimate is biased by design. How sure: code read.
    """

    paper = "Wang et al. 2025, arXiv:2510.06062"
    core: ClassVar[bool] = False

    clip: float = 0.2  # ε
    clip_high: float = 0.0  # ε above 1; 0 is the same as `clip`
    cap: float = 3.0  # largest weight; 0 is no cap
    anchor: Literal["behaviour", "proximal"] = "behaviour"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("clip", self.clip > 0, "above 0")
        self.require("clip_high", self.clip_high >= 0, "0 (the same as clip) or above")
        self.require("cap", self.cap == 0 or self.cap >= 1, "0 (no cap) or at least 1")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.anchor == "proximal" else "behaviour"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        anchor = d.proximal_logp if self.anchor == "proximal" else d.behaviour_logp
        ratio = importance_ratio(d.target_logp.detach(), anchor)
        _, outside = clipped_surrogate(ratio, d.advantage, self.clip, self.clip_high or None)
        weight, cut = truncated(ratio.reciprocal().where(d.advantage > 0, ratio), self.cap)
        loss = -(1.0 - outside) * weight * d.advantage * d.target_logp
        return PolicyLoss(loss, {"clipped": outside, "truncated": cut, "importance_weight": weight})
