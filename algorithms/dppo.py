from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import importance_ratio, outward
from staleharness.weights import truncated

if TYPE_CHECKING:
    from torch import Tensor


@ALGORITHMS.register("dppo")
@dataclass(frozen=True)
class DPPO(Algorithm):
    """DPPO: a trust region on each token's divergence, estimated from its probability, instead of on its ratio.

    Maximises  m sg(min(w, cap)) A log π  with w = π/μ, and m = 0 where a step would increase the divergence (A > 0 and
    π > μ, or A < 0 and π < μ) and the divergence already exceeds delta. The vocabulary is treated as two outcomes, this
    token and all others: `tv` is |π − μ|, `kl` is KL[μ ‖ π] of the two-outcome distributions (Qi et al. 2026). A bound
    on the ratio ignores how likely a token is; this one is looser for unlikely tokens and tighter for likely ones.

    A probability density has no absolute scale. If the policy has a closed form (control), `tv` is |w − 1|, so that the
    mask is PPO's with ε = delta, and `kl` is the KL of the whole distribution in that state.

    The default delta is prime-rl's for `tv`; verl's example (examples/dppo_trainer at 1dda039) has 0.15 for `tv` and
    0.05 for `kl`. prime-rl also adds a penalty 1e-3 log² w.
    """

    paper = "Qi et al. 2026, arXiv:2602.04879"
    core: ClassVar[bool] = False

    divergence: Literal["tv", "kl"] = "tv"
    delta: float = 0.2  # difference of probabilities for `tv`, nats for `kl`
    cap: float = 20.0  # largest weight; 0 is no cap

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("delta", self.delta >= 0, "0 or above")
        self.require("cap", self.cap >= 0, "0 (no cap) or above")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        ratio = importance_ratio(d.target_logp, d.behaviour_logp).detach()
        far = (self._divergence(d, ratio) > self.delta).to(ratio.dtype)
        masked = far * outward(ratio, d.advantage)
        weight, cut = truncated(ratio, self.cap)
        loss = -(1.0 - masked) * weight * d.advantage * d.target_logp
        return PolicyLoss(loss, {"clipped": masked, "truncated": cut})

    def _divergence(self, d: Decisions, ratio: Tensor) -> Tensor:
        if d.analytic_kl is not None:
            return d.analytic_kl("behaviour").detach() if self.divergence == "kl" else (ratio - 1.0).abs()
        pi, mu = (x.detach().exp().clamp(1e-6, 1.0 - 1e-6) for x in (d.target_logp, d.behaviour_logp))
        if self.divergence == "tv":
            return (pi - mu).abs()
        return mu * (mu / pi).log() + (1.0 - mu) * ((1.0 - mu) / (1.0 - pi)).log()
