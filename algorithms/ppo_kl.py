from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import Anchor, KLEstimator, clipped_surrogate, importance_ratio, kl_divergence


@ALGORITHMS.register("ppo_kl")
@dataclass(frozen=True)
class PPOKL(Algorithm):
    """PPO with a KL penalty in addition to the clip, with a fixed or an adaptive coefficient.

    Maximises  min(wA, clip(w, 1 − ε, 1 + ε)A) − κ KL[reference ‖ π],  w = π/μ.

    VACO (arXiv:2603.01365) labels this baseline by κ and calls κ = 0 PPO-Clip, so the penalty is combined with the
    clipped objective; its estimator is not given. `clip = 0` removes the clip: with `reference = behaviour` that is the
    penalty of Schulman et al. 2017 (eq. 8), with `reference = proximal` the penalised form of decoupled PPO (Hilton et
    al. 2022, whose code penalises ½ (log π/π_prox)², k2, although the paper writes KL).

    `adaptive` multiplies κ by 1.5 after a phase whose mean KL was above twice `target`, and by 0.5 if it was below half
    of it: RLlib's rule and target. The 2017 paper's own rule has the factors 2 and ½, above 1.5 times the target and
    below it divided by 1.5.
    """

    paper = "Schulman et al. 2017, arXiv:1707.06347"

    clip: float = 0.2  # ε; 0 is no clip
    kl_coef: float = 1.0  # κ; its initial value if adaptive
    estimator: KLEstimator = "auto"  # auto: analytic if the KL has a closed form, k3 on tokens
    reference: Anchor = "behaviour"
    adaptive: bool = False
    target: float = 0.01  # KL per decision, in nats

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("clip", self.clip >= 0, "0 (no clip) or above")
        self.require("kl_coef", self.kl_coef >= 0, "0 or above")
        self.require("target", self.target > 0, "above 0")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.reference == "proximal" else "behaviour"

    def init_state(self) -> dict[str, float]:
        return {"kl_coef": self.kl_coef}

    def next_state(self, state: Mapping[str, float], diagnostics: Mapping[str, float]) -> dict[str, float]:
        kl, factor = diagnostics["kl"], 1.0
        if self.adaptive and kl > 2.0 * self.target:
            factor = 1.5
        elif self.adaptive and kl < 0.5 * self.target:
            factor = 0.5
        return {"kl_coef": factor * state["kl_coef"]}

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        ratio = importance_ratio(d.target_logp, d.behaviour_logp)
        kl = kl_divergence(d, self.reference, self.estimator)
        objective, diagnostics = ratio * d.advantage, {"kl": kl}
        if self.clip:
            objective, diagnostics["clipped"] = clipped_surrogate(ratio, d.advantage, self.clip)
        return PolicyLoss(d.state["kl_coef"] * kl - objective, diagnostics)
