from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import importance_ratio


@ALGORITHMS.register("sapo")
@dataclass(frozen=True)
class SAPO(Algorithm):
    """SAPO: a smooth gate on the ratio in place of PPO's clip, narrower where the advantage is negative.

    Maximises  f(r) A,  f(r) = 4/τ · σ(τ(r − 1)),  τ = `tau_positive` where A > 0 and `tau_negative` elsewhere (Gao et
    al. 2025). A decision's gradient coefficient is 4 s (1 − s) r A, s = σ(τ(r − 1)). The gate 4 s (1 − s) is 1 at
    r = 1, decreases in both directions and never reaches 0. A clip is one-sided; the gate also weakens gradients that
    would bring r back to 1.

    r = π/μ, or π/π_prox with `anchor = proximal`, as in verl (core_algos.py:1621 at 1dda039) and TRL
    (grpo_trainer.py:3092 at f2cd577), which agree on the formula and on τ. Both average over a completion's tokens,
    then over completions: `SET=aggregation=seq-mean-token-mean`. Checked against both codes; the paper's equation
    number was not seen.
    """

    paper = "Gao et al. 2025, arXiv:2511.20347"
    core: ClassVar[bool] = False

    tau_positive: float = 1.0  # τ where A > 0; larger is narrower
    tau_negative: float = 1.05  # τ where A ≤ 0
    anchor: Literal["behaviour", "proximal"] = "behaviour"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("tau_positive", "tau_negative"):
            self.require(key, getattr(self, key) > 0, "above 0")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.anchor == "proximal" else "behaviour"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        anchor = d.proximal_logp if self.anchor == "proximal" else d.behaviour_logp
        ratio = importance_ratio(d.target_logp, anchor)
        tau = self.tau_negative + (self.tau_positive - self.tau_negative) * (d.advantage > 0).to(ratio.dtype)
        gate = (tau * (ratio - 1.0)).sigmoid()
        return PolicyLoss(-4.0 / tau * gate * d.advantage, {"gate": 4.0 * gate * (1.0 - gate)})
