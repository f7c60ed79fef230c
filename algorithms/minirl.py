from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, importance_ratio
from staleharness.weights import truncated


@ALGORITHMS.register("minirl")
@dataclass(frozen=True)
class MiniRL(Algorithm):
    """MiniRL: REINFORCE with truncated token weights against the sampler, masked by PPO's clip around π_prox.

    Maximises  m sg(min(w, cap)) A log π,  w = π/μ, with m = 0 where PPO's clip around the learner at the start of the
    phase would end the gradient: A > 0 and π/π_prox > 1 + ε_high, or A < 0 and π/π_prox < 1 − ε (Zheng et al. 2025,
    Qwen's recipe for mixtures of experts, which also uses routing replay).

    ε is 0.2 and ε_high 0.27. The cap is 5 in Qwen's text; DPPO's runs of MiniRL have no cap, or 3. The recipe's
    advantage is R minus the group's mean, summed over tokens:
    `SET=baseline=dr_grpo,aggregation=seq-mean-token-sum-norm`. The gradient is as in DPPO's appendix
    (arXiv:2602.04879); we know of no code by the authors.
    """

    paper = "Zheng et al. 2025, arXiv:2512.01374"
    core: ClassVar[bool] = False

    clip: float = 0.2  # ε
    clip_high: float = 0.27  # ε above 1; 0 is the same as `clip`
    cap: float = 5.0  # largest weight π/μ; 0 is no cap

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("clip", self.clip > 0, "above 0")
        self.require("clip_high", self.clip_high >= 0, "0 (the same as clip) or above")
        self.require("cap", self.cap >= 0, "0 (no cap) or above")

    @property
    def proximal(self) -> Proximal:
        return "recompute"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        logp = d.target_logp.detach()
        ratio = importance_ratio(logp, d.proximal_logp)
        _, outside = clipped_surrogate(ratio, d.advantage, self.clip, self.clip_high or None)
        weight, cut = truncated(importance_ratio(logp, d.behaviour_logp), self.cap)
        loss = -(1.0 - outside) * weight * d.advantage * d.target_logp
        return PolicyLoss(loss, {"clipped": outside, "truncated": cut, "importance_weight": weight})
