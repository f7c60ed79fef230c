from __future__ import annotations

from dataclasses import dataclass

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import importance_ratio, spo_surrogate


@ALGORITHMS.register("spo")
@dataclass(frozen=True)
class SPO(Algorithm):
    """Simple Policy Optimisation: a quadratic penalty with its optimum at ratio 1 ± ε, in place of the clip.

    Maximises  wA − |A|(w − 1)²/2ε,  w = π/μ  (Xie et al. 2025, Algorithm 1; the authors' code is the same). The vertex
    is w = 1 + ε sign(A); beyond it the gradient reverses, where PPO's vanishes. Stale decisions start away from w = 1,
    and the gradient towards μ grows without bound: watch `ratio_deviation`.
    """

    paper = "Xie et al. 2025, ICML, arXiv:2401.16025"

    epsilon: float = 0.2  # ε, the deviation of the ratio at which the objective peaks

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("epsilon", self.epsilon > 0, "above 0")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        ratio = importance_ratio(d.target_logp, d.behaviour_logp)
        objective = spo_surrogate(ratio, d.advantage, self.epsilon)
        return PolicyLoss(-objective, {"ratio_deviation": (ratio - 1.0).abs()})
