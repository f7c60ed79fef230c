from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, importance_ratio


@ALGORITHMS.register("decoupled_ppo")
@dataclass(frozen=True)
class DecoupledPPO(Algorithm):
    """Decoupled PPO: clips around a recent policy, and corrects for the behaviour policy by a weight (also PPO-EWMA).

    Maximises  (π_prox/μ) min(rA, clip(r, 1 − ε, 1 + ε)A),  r = π/π_prox  (Hilton et al. 2022, section 3). While r is
    within the clip the gradient is the full w A ∇log π, w = π/μ. This is the same as clipping w itself to
    (π_prox/μ)(1 ± ε).

    π_prox is the learner at the start of the phase (`recompute`), or PPO-EWMA's moving average of its parameters with
    decay β per gradient step (`ewma`; its centre of mass lies 1/(1 − β) − 1 steps back, which for 0.889 is the 8
    minibatches of the paper's phase). As in the paper's code, but not in the paper, log μ is raised where needed so
    that w never exceeds `weight_cap`; the gradient is kept. The penalised form is `ppo_kl` with
    `clip = 0, reference = proximal`.
    """

    paper = "Hilton et al. 2022, arXiv:2110.00641"

    clip: float = 0.2  # ε
    proximal: Literal["recompute", "ewma"] = "recompute"
    ewma_decay: float = 0.889  # β
    weight_cap: float = 100.0  # largest w; 0 is no cap

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("clip", self.clip > 0, "above 0")
        self.require("ewma_decay", 0 <= self.ewma_decay < 1, "at least 0 and below 1")
        self.require("weight_cap", self.weight_cap == 0 or self.weight_cap >= 1, "0 (no cap) or at least 1")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        behaviour_logp = d.behaviour_logp
        if self.weight_cap:
            behaviour_logp = behaviour_logp.maximum(d.target_logp.detach() - math.log(self.weight_cap))
        ratio = importance_ratio(d.target_logp, d.proximal_logp)
        weight = importance_ratio(d.proximal_logp, behaviour_logp)
        objective, clipped = clipped_surrogate(ratio, d.advantage, self.clip)
        return PolicyLoss(-weight * objective, {"clipped": clipped, "behaviour_weight": weight})
