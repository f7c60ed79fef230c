from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import log_ratio
from staleharness.weights import Level, level_log_ratio, truncated


@ALGORITHMS.register("topr")
@dataclass(frozen=True)
class TOPR(Algorithm):
    """TOPR, tapered off-policy REINFORCE: weight 1 where the advantage is positive, a truncated ratio elsewhere.

    Maximises  u A log π  with u = 1 where A > 0 and u = sg(min(w, cap)) where A ≤ 0, w = Π_t π_t/μ_t of the completion
    (Le Roux et al. 2025). Good completions are reinforced however unlikely they have become; the gradient of bad ones
    vanishes once π has moved away from them, so that their probability is not pushed towards 0 indefinitely.

    The paper goes by the sign of the reward; here it is the sign of the advantage, which is the same for a reward of ±1
    without a baseline. ROLL goes by the sign of the score, still multiplies by the advantage, and by default cuts the
    ratio π/π_old of each token at 1 (`_compute_topr_loss` at 8eb27cc2).
    """

    paper = "Le Roux et al. 2025, arXiv:2503.14286"
    core: ClassVar[bool] = False

    cap: float = 1.0  # largest weight where the advantage is not positive; 0 is no cap
    level: Level = "sequence"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("cap", self.cap >= 0, "0 (no cap) or above")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        log_w = level_log_ratio(log_ratio(d.target_logp.detach(), d.behaviour_logp), d.mask, self.level)
        tapered, cut = truncated(log_w.exp(), self.cap)
        bad = (d.advantage <= 0).to(log_w.dtype)
        weight = 1.0 - bad + bad * tapered
        loss = -weight * d.advantage * d.target_logp
        return PolicyLoss(loss, {"truncated": bad * cut, "importance_weight": weight})
