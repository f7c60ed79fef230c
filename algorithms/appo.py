from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss, Targets, Trajectories
from staleharness.objectives import AdvantageForm, clipped_surrogate, importance_ratio, log_ratio, vtrace


@ALGORITHMS.register("appo")
@dataclass(frozen=True)
class APPO(Algorithm):
    """APPO with IMPACT's surrogate: PPO-clip around a slow target network, with advantages by V-trace.

    Maximises  min(rA, clip(r, 1 − ε, 1 + ε)A)  with r = min(μ/π_tgt, β) π/μ = π / max(π_tgt, μ/β) (Luo et al. 2020; the
    form is RLlib's, with β = 2). Usually r is π/π_tgt, as in PPO; for an action that was far more likely under μ than
    under the target network, r stays small. A is V-trace's advantage times min(ρ̄, π_T/μ), the only importance weight
    in the loss; π_T is the learner at the start of the phase.

    The target network is the learner at the start of the phase (`recompute`; RLlib copies it every few steps), or its
    moving average (`ewma`). V-trace evaluates π_T in both cases. RLlib uses λ = 1, where the two advantage forms
    coincide, limits the gradient norm to 40 and leaves advantages as they are, where control normalises them by default
    (`SET=normalise_advantage=false`); all three are settings of the run.
    """

    paper = "Luo et al. 2020, ICLR, arXiv:1912.00167"
    core: ClassVar[bool] = False

    clip: float = 0.4  # ε
    weight_cap: float = 2.0  # β, largest μ/π_tgt
    rho_bar: float = 1.0  # ρ̄, in V-trace and in the weight of the advantage
    c_bar: float = 1.0
    advantage_form: AdvantageForm = "lambda_mix"
    proximal: Literal["recompute", "ewma"] = "recompute"
    ewma_decay: float = 0.889

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("clip", "weight_cap", "rho_bar", "c_bar"):
            self.require(key, getattr(self, key) > 0, "above 0")
        self.require("ewma_decay", 0 <= self.ewma_decay < 1, "at least 0 and below 1")

    def inactive(self, updates: int) -> str | None:
        return None  # where μ > β π_tgt the ratio is not 1, even before the first step

    def targets(self, t: Trajectories) -> Targets:
        targets = vtrace(t, self.rho_bar, self.c_bar, self.advantage_form)
        weight = importance_ratio(t.target_logp, t.behaviour_logp).clamp(max=self.rho_bar)
        return Targets(weight * targets.advantage, targets.value_target)

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        excess = log_ratio(d.behaviour_logp, d.proximal_logp)
        limit = math.log(self.weight_cap)
        anchor = d.behaviour_logp - excess.clamp(max=limit)
        objective, clipped = clipped_surrogate(importance_ratio(d.target_logp, anchor), d.advantage, self.clip)
        return PolicyLoss(-objective, {"clipped": clipped, "truncated": (excess > limit).to(excess.dtype)})
