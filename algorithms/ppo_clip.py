from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, importance_ratio


@ALGORITHMS.register("ppo_clip")
@dataclass(frozen=True)
class PPOClip(Algorithm):
    """PPO with a clipped surrogate, anchored at the behaviour policy, the proximal policy, or both.

    Maximises  u · min(rA, clip(r, 1 − ε, 1 + ε)A)  (Schulman et al. 2017, eq. 7), where

        anchor       r           u
        behaviour    π/μ         1          the clip is a trust region around the policy that acted
        proximal     π/π_prox    1          stale data treated as if the recent policy had acted
        decoupled    π/π_prox    π_prox/μ   two roles for two policies (Hilton et al. 2022)

    π_prox is the learner at the start of the phase. The 2017 paper writes one "old" policy and means both;
    with stale data the three anchors differ. They are the three loss modes of PPO-EWMA's code (`behavior`,
    `proximal`, `decoupled`). On-policy, all three are the same.

    With group-relative advantages this is GRPO; with `clip_high` above `clip` it is DAPO's clip-higher (Yu et
    al. 2025, arXiv:2503.14476: 0.28; VACO's language baseline: 0.272), where positive advantages may move
    further than negative ones.
    """

    paper = "Schulman et al. 2017, arXiv:1707.06347"

    clip: float = 0.2  # ε
    clip_high: float = 0.0  # ε above ratio 1; 0 is the same as `clip`
    anchor: Literal["behaviour", "proximal", "decoupled"] = "behaviour"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("clip", self.clip > 0, "above 0")
        self.require("clip_high", self.clip_high >= 0, "0 (the same as clip) or above")

    @property
    def proximal(self) -> Proximal:
        return "behaviour" if self.anchor == "behaviour" else "recompute"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        anchor = d.behaviour_logp if self.anchor == "behaviour" else d.proximal_logp
        ratio = importance_ratio(d.target_logp, anchor)
        objective, clipped = clipped_surrogate(ratio, d.advantage, self.clip, self.clip_high or None)
        if self.anchor == "decoupled":
            objective = importance_ratio(d.proximal_logp, d.behaviour_logp) * objective
        return PolicyLoss(-objective, {"clipped": clipped})
