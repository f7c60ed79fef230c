from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, dual_clip, importance_ratio
from staleharness.spec import later


@ALGORITHMS.register("ppo_clip")
@dataclass(frozen=True)
class PPOClip(Algorithm):
    """PPO with a clipped surrogate, anchored at the behaviour policy, the proximal policy, or both.

    Maximises  u · min(rA, clip(r, 1 − ε, 1 + ε)A)  (Schulman et al. 2017, eq. 7), where

        anchor       r           u
        behaviour    π/μ         1          the clip is a trust region around the policy that acted
        proximal     π/π_prox    1          stale data are treated as if π_prox had acted
        decoupled    π/π_prox    π_prox/μ   clip around π_prox, weight for μ (Hilton et al. 2022)

    π_prox is the learner at the start of the phase. The 2017 paper has one policy in both roles; with stale data the
    three anchors differ. They are the three loss modes of PPO-EWMA's code (`behavior`, `proximal`, `decoupled`).
    On-policy, all three are the same.

    With group-relative advantages this is GRPO; with `clip_high` above `clip` it is DAPO's clip-higher (Yu et al. 2025,
    arXiv:2503.14476: 0.28; VACO's language baseline: 0.272), where positive advantages may move further than negative
    ones.

    Where A < 0 the minimum does not bound ratios above 1: `dual_clip` = c also ends the gradient there once r > c (Ye
    et al. 2020, arXiv:1912.09729). It is on with c = 3 by default in verl (core_algos.py:1323 at 1dda039) and off in
    TRL, whose `delta` cuts r first and has the same gradient.
    """

    paper = "Schulman et al. 2017, arXiv:1707.06347"

    clip: float = 0.2  # ε
    clip_high: float = 0.0  # ε above ratio 1; 0 is the same as `clip`
    anchor: Literal["behaviour", "proximal", "decoupled"] = "behaviour"
    dual_clip: float = later(0.0, before=0.0)  # c, ratio above which A < 0 gets no gradient; 0 is none

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("clip", self.clip > 0, "above 0")
        self.require("clip_high", self.clip_high >= 0, "0 (the same as clip) or above")
        self.require("dual_clip", self.dual_clip == 0 or self.dual_clip > 1, "0 (none) or above 1")

    @property
    def proximal(self) -> Proximal:
        return "behaviour" if self.anchor == "behaviour" else "recompute"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        anchor = d.behaviour_logp if self.anchor == "behaviour" else d.proximal_logp
        ratio = importance_ratio(d.target_logp, anchor)
        objective, clipped = clipped_surrogate(ratio, d.advantage, self.clip, self.clip_high or None)
        if self.dual_clip:
            objective, clipped = dual_clip(objective, clipped, ratio, d.advantage, self.dual_clip)
        if self.anchor == "decoupled":
            objective = importance_ratio(d.proximal_logp, d.behaviour_logp) * objective
        return PolicyLoss(-objective, {"clipped": clipped})
