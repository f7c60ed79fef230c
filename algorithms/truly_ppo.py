from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import Anchor, importance_ratio


@ALGORITHMS.register("truly_ppo")
@dataclass(frozen=True)
class TrulyPPO(Algorithm):
    """Truly PPO: decisions beyond a KL trust region are penalised, where PPO's clip only removes their gradient.

    Maximises  rA − αK  where K ≥ δ and rA > A (the objective has already improved), else  rA,  with K = KL[anchor ‖ π]
    in that state (Wang et al. 2019, eq. 16). The paper's ablations:

        rule       beyond the region                   region
        truly      rA − αK                             K < δ
        tr         nothing, the gradient is zero       K < δ           TR-PPO (δ = 0.035)
        rollback   (−αr + (1 + α)(1 ± ε))A             1 ± ε           PPO-RB (α = 0.3)

    The constants are those of the authors' code for MuJoCo (github.com/wangyuhuix/TrulyPPO, ppo2_AdaClip/run.py; on
    Humanoid it has δ = 0.05, and α = 0.4 without the term rA). The KL is that of the whole distribution, so the policy
    needs a KL in closed form.
    """

    paper = "Wang et al. 2019, arXiv:1903.07940"
    core: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"closed_form"})

    rule: Literal["truly", "tr", "rollback"] = "truly"
    delta: float = 0.03  # δ, nats
    alpha: float = 5.0  # α, coefficient of K, or slope with rule=rollback
    clip: float = 0.2  # ε, with rule=rollback
    anchor: Anchor = "behaviour"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("delta", "alpha"):
            self.require(key, getattr(self, key) >= 0, "0 or above")
        self.require("clip", self.clip > 0, "above 0")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.anchor == "proximal" else "behaviour"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        assert d.analytic_kl is not None
        ratio = importance_ratio(d.target_logp, d.proximal_logp if self.anchor == "proximal" else d.behaviour_logp)
        kl, gain = d.analytic_kl(self.anchor), ratio * d.advantage
        if self.rule == "rollback":
            edge = 1.0 + self.clip * d.advantage.sign()
            beyond = (gain > edge * d.advantage).to(gain.dtype)
            outside = (-self.alpha * ratio + (1.0 + self.alpha) * edge) * d.advantage
        else:
            beyond = ((kl.detach() >= self.delta) & (gain > d.advantage)).to(gain.dtype)
            outside = gain - self.alpha * kl if self.rule == "truly" else gain.detach()
        touched = {"clipped": beyond} if self.rule == "tr" else {"rolled_back": beyond}
        return PolicyLoss(-(gain + beyond * (outside - gain)), {**touched, "kl": kl})
