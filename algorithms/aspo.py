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
    """ASPO: positive advantages are weighted by 1/r instead of r, which gives unlikely good tokens a larger gradient.

    Maximises  m sg(u) A log π: where A > 0, u = min(1/r, cap) and m = 0 above r = 1 + ε_high; where A < 0, u = min(r,
    cap) and m = 0 below r = 1 − ε, as in PPO with a dual clip that keeps the gradient (Wang et al. 2025). The
    motivation: with weight r, a token that has become more likely gets a larger gradient, which makes it more likely
    still.

    The cap is 3 and ε is 0.2. Archer2.0 (verl/trainer/ppo/core_algos.py:541 at b08d963) uses ε = 0.4 for the fifth of
    the tokens with the highest entropy; decisions have no entropy here, so `clip` applies to all. r = π/μ, or π/π_prox
    with `anchor = proximal`, as in Archer2.0. 1/r is not an importance weight: at high lag the estimate is biased by
    design. Checked against the code.
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
