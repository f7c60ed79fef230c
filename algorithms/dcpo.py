from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import importance_ratio


@ALGORITHMS.register("dcpo")
@dataclass(frozen=True)
class DCPO(Algorithm):
    """DCPO's dynamic clip: PPO's clip, wider for less likely tokens.

    Maximises  min(rA, clip(r, c_low, c_high)A)  with c_low = ½ + ½ √max(0, 1 − 4ε/p) and c_high = min(½ + ½
    √(1 + 4ε_high/p), `most`), where p is the token's probability under the anchor (Yang et al. 2025). The bounds solve
    |r − 1| r p ≤ ε, a limit on the change in probability times the ratio.

    ε = 0.2, ε_high = 0.28 and `most` = 10 are those of the authors' script (recipe/dcpo/run_dcpo.sh at 01787b0); their
    README has 0.2 and 0.28 for DAPO, and 0.16 and 0.2 for DCPO. They average by `only-token-mean`, over the tokens of a
    micro-batch, and also end the gradient where A < 0 and r > 10 (verl/trainer/ppo/core_algos.py:978). Only the clip is
    implemented: the paper's smooth advantage averages over all rounds so far, and `targets` sees one. r = π/μ, or
    π/π_prox with `anchor = proximal`, as in their code. A density is not a probability: on control p is 1. Checked
    against the code.
    """

    paper = "Yang et al. 2025, arXiv:2509.02333"
    core: ClassVar[bool] = False

    clip: float = 0.2  # ε
    clip_high: float = 0.28  # ε above 1; 0 is the same as `clip`
    most: float = 10.0  # largest upper bound, and the largest ratio where A < 0
    anchor: Literal["behaviour", "proximal"] = "behaviour"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("clip", self.clip > 0, "above 0")
        self.require("clip_high", self.clip_high >= 0, "0 (the same as clip) or above")
        self.require("most", self.most > 1, "above 1")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.anchor == "proximal" else "behaviour"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        anchor = d.proximal_logp if self.anchor == "proximal" else d.behaviour_logp
        ratio = importance_ratio(d.target_logp, anchor)
        odds = (-anchor).clamp(min=0.0, max=20.0).exp() if d.analytic_kl is None else ratio.new_ones(ratio.shape)
        low = 0.5 + 0.5 * (1.0 - 4.0 * self.clip * odds).clamp(min=0.0).sqrt()
        high = (0.5 + 0.5 * (1.0 + 4.0 * (self.clip_high or self.clip) * odds).sqrt()).clamp(max=self.most)
        limit = high.where(d.advantage > 0, self.most)
        outside = (((d.advantage > 0) | (d.advantage < 0)) & (ratio > limit)) | ((d.advantage < 0) & (ratio < low))
        bound = ratio.detach().maximum(low).minimum(limit)
        objective = bound.where(outside, ratio) * d.advantage
        return PolicyLoss(-objective, {"clipped": outside.to(ratio.dtype), "bound_low": low, "bound_high": high})
