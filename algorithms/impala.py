from __future__ import annotations

from dataclasses import dataclass

from staleharness.algorithm import ALGORITHMS, Algorithm, Realign
from staleharness.batch import Decisions, PolicyLoss, Targets, Trajectories
from staleharness.objectives import AdvantageForm, importance_ratio, vtrace


@ALGORITHMS.register("impala")
@dataclass(frozen=True)
class IMPALA(Algorithm):
    """IMPALA: policy gradient with a truncated importance weight, and V-trace recomputed at every step.

    Maximises  sg(min(ρ̄_pg, w)) A log π,  w = π/μ, with V-trace's A (Espeholt et al. 2018, section 4.2): one importance
    weight, outside A, and no trust region.

    The paper's A is r + γv' − V (`vs`), without a λ; rlax and Cleanba mix v' and V' by λ (`lambda_mix`). At λ = 1 the
    two coincide; below it only the second is GAE(λ) on-policy. `lambda_mix` is the default here, so that at K = 1 this
    method starts from the same advantages as the others. The paper's summed loss and RMSProp are left to the run.
    """

    paper = "Espeholt et al. 2018, ICML, arXiv:1802.01561"

    rho_bar: float = 1.0  # ρ̄, sets the policy whose value V-trace converges to
    c_bar: float = 1.0  # c̄, sets the speed of convergence
    pg_rho_bar: float = 1.0  # truncation of the weight in the policy gradient
    advantage_form: AdvantageForm = "lambda_mix"
    realign_every: Realign = "step"
    normalise_advantage: bool = False  # as in the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("rho_bar", "c_bar", "pg_rho_bar"):
            self.require(key, getattr(self, key) > 0, "above 0")

    def targets(self, t: Trajectories) -> Targets:
        return vtrace(t, self.rho_bar, self.c_bar, self.advantage_form)

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        ratio = importance_ratio(d.target_logp, d.behaviour_logp).detach()
        truncated = (ratio > self.pg_rho_bar).to(ratio.dtype)
        loss = -ratio.clamp(max=self.pg_rho_bar) * d.advantage * d.target_logp
        return PolicyLoss(loss, {"rho_truncated": truncated})
