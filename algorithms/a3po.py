from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, importance_ratio, log_ratio


@ALGORITHMS.register("a3po")
@dataclass(frozen=True)
class A3PO(Algorithm):
    """A-3PO (loglinear PPO): decoupled PPO with a proximal policy that is interpolated by lag, without a forward pass.

    log π_prox = log μ + (1 − 1/d) sg(log π − log μ) with the lag d of each decision (Li et al., eqs. 3-6), or the same
    interpolation of probabilities (`linear`). Then, as in decoupled PPO, it maximises u · min(rA, clip(r, 1 − ε,
    1 + ε)A) with r = π/π_prox and u = π_prox/μ.

    For `loglinear`, r = w^(1/d) and u = w^(1 − 1/d), w = π/μ: the gradient is PPO's w A ∇log π with the clip widened to
    (1 − ε)^d … (1 + ε)^d. d = 1 is PPO clipped around μ.

    At d = 0 the paper's listing and the authors' code (AReaL) disagree: the listing has π_prox = π, which never clips;
    the code has π_prox = μ, which is PPO. AReaL today also drops u unless a rejection rule is set; an earlier version
    masked u above 5.
    """

    paper = "Li et al. 2025, arXiv:2512.06547"

    clip: float = 0.2  # ε
    interpolation: Literal["loglinear", "linear"] = "loglinear"
    d0: Literal["areal", "paper"] = "areal"  # treatment of d = 0: PPO around μ, or no clip
    lag_unit: Literal["phases", "gradient_steps"] = "phases"
    behaviour_weight: Literal["raw", "truncate", "mask", "none"] = "raw"  # u; min(u, cap); u·1[u ≤ cap]; 1
    weight_cap: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("clip", self.clip > 0, "above 0")
        self.require("weight_cap", self.weight_cap > 0, "above 0")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        lag = d.lag if self.lag_unit == "phases" else d.gradient_lag
        towards_target = 1.0 - 1.0 / lag.clamp(min=1.0)
        if self.d0 == "paper":
            towards_target = towards_target.masked_fill(lag <= 0, 1.0)
        log_w = log_ratio(d.target_logp.detach(), d.behaviour_logp)
        if self.interpolation == "loglinear":
            log_weight = towards_target * log_w
        else:
            log_weight = (1.0 - towards_target + towards_target * log_w.exp()).log()
        ratio = importance_ratio(d.target_logp, d.behaviour_logp + log_weight)
        objective, clipped = clipped_surrogate(ratio, d.advantage, self.clip)
        weight = log_weight.exp()
        if self.behaviour_weight == "truncate":
            weight = weight.clamp(max=self.weight_cap)
        elif self.behaviour_weight == "mask":
            weight = weight * (weight <= self.weight_cap)
        elif self.behaviour_weight == "none":
            weight = weight.new_ones(weight.shape)
        return PolicyLoss(-weight * objective, {"clipped": clipped, "behaviour_weight": weight})
