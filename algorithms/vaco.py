from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Realign
from staleharness.batch import Decisions, PolicyLoss, Targets, Trajectories
from staleharness.objectives import (
    AdvantageForm,
    KLEstimator,
    clipped_surrogate,
    gae,
    importance_ratio,
    kl_divergence,
    outward,
    spo_surrogate,
    total_variation,
    vtrace,
)


@ALGORITHMS.register("vaco")
@dataclass(frozen=True)
class VACO(Algorithm):
    """VACO: advantages realigned once per phase by V-trace, and a total-variation filter as the trust region.

    Maximises  m w Ã  with w = π/μ and Ã = A − α sg(log π) (α = 0 by default). A minibatch is filtered if
    D_TV = ½ mean|w − 1| > δ/2; then m = 0 for the decisions whose gradient would raise D_TV, Ã sign(w − 1) > 0, and 1
    for the others (eqs. 16-21). TV is measured against the behaviour policy, so with stale data the filter may be
    active at the first gradient step. Filtered decisions stay in the denominator of the mean.

    The two parts can be chosen independently, as `advantage` and `trust_region`. δ is the ε of `clip` and `spo` (the
    paper halves its threshold so that they are the same size); `kl` subtracts κ KL[μ ‖ π].

    V-trace evaluates the policy at the start of the phase, with the newest critic. The advantage has no factor ρ,
    because w is already in the objective. The paper's A (eq. 15) is r + γv' − V, here `vs`, and its λ is not given;
    below λ = 1 that is not GAE(λ) on-policy. The default `lambda_mix` is, so at K = 1 VACO starts from PPO's
    advantages, and differs from PPO in the trust region alone. At λ = 1 the two forms coincide.
    """

    paper = "Honari et al. 2026, arXiv:2603.01365"

    advantage: Literal["vtrace", "gae"] = "vtrace"
    trust_region: Literal["tv_filter", "clip", "spo", "kl", "none"] = "tv_filter"
    delta: float = 0.2  # δ; D_TV may reach δ/2
    realign_every: Realign = "phase"
    advantage_form: AdvantageForm = "lambda_mix"
    value_target: Literal["same", "vtrace", "gae"] = "same"  # same: the advantage's estimator
    rho_bar: float = 1.0
    c_bar: float = 1.0
    entropy_coef: float = 0.0  # α
    kl_coef: float = 1.0  # κ, for trust_region = "kl"
    kl_estimator: KLEstimator = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("delta", "rho_bar", "c_bar"):
            self.require(key, getattr(self, key) > 0, "above 0")
        for key in ("entropy_coef", "kl_coef"):
            self.require(key, getattr(self, key) >= 0, "0 or above")

    def targets(self, t: Trajectories) -> Targets:
        def estimate(name: str) -> Targets:
            return gae(t) if name == "gae" else vtrace(t, self.rho_bar, self.c_bar, self.advantage_form)

        targets = estimate(self.advantage)
        if self.value_target in ("same", self.advantage):
            return targets
        return Targets(targets.advantage, estimate(self.value_target).value_target)

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        ratio = importance_ratio(d.target_logp, d.behaviour_logp)
        advantage = d.advantage - self.entropy_coef * d.target_logp.detach()
        objective, diagnostics = ratio * advantage, {}
        if self.trust_region == "tv_filter":
            active = total_variation(ratio.detach(), d.mask) > self.delta / 2.0
            filtered = outward(ratio, advantage) * active
            objective = (1.0 - filtered) * objective
            diagnostics = {"clipped": filtered, "filter_active": active.to(ratio.dtype).expand(ratio.shape)}
        elif self.trust_region == "clip":
            objective, diagnostics["clipped"] = clipped_surrogate(ratio, advantage, self.delta)
        elif self.trust_region == "spo":
            objective = spo_surrogate(ratio, advantage, self.delta)
        elif self.trust_region == "kl":
            kl = kl_divergence(d, "behaviour", self.kl_estimator)
            objective, diagnostics["kl"] = objective - self.kl_coef * kl, kl
        return PolicyLoss(-objective, diagnostics)
