from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, dual_clip, importance_ratio


@ALGORITHMS.register("ce_gppo")
@dataclass(frozen=True)
class CEGPPO(Algorithm):
    """CE-GPPO: decisions outside PPO's clip keep a gradient, bounded by the clip and scaled separately on each side.

    Maximises PPO's rA inside the clip and  β (1 ± ε) r/sg(r) A  outside it: the gradient coefficient is β₂(1 + ε)A
    where A > 0 and r > 1 + ε, and β₁(1 − ε)A where A < 0 and r < 1 − ε (Su et al. 2025). β₁ = β₂ = 0 is PPO.

    ε is 0.2, β₁ 0.75 and β₂ 1 in the authors' 7B run; β₁ is 0.5 in their 1.5B run and 0.25 in their configuration
    (verl/trainer/ppo/core_algos.py:531 at 10558fe). Their code also keeps verl's dual clip (`dual_clip`, at 10 in those
    runs and 3 by default), which ends the gradient where A < 0 and r is larger; the paper's objective has no dual clip.
    r = π/μ, or π/π_prox with `anchor = proximal`, as in their code. Checked against the code.
    """

    paper = "Su et al. 2025, arXiv:2509.20712"
    core: ClassVar[bool] = False

    beta_low: float = 0.75  # β₁, share of (1 − ε)A that is kept where A < 0 and r < 1 − ε
    beta_high: float = 1.0  # β₂, share of (1 + ε_high)A that is kept where A > 0 and r > 1 + ε_high
    clip: float = 0.2  # ε
    clip_high: float = 0.0  # ε above 1; 0 is the same as `clip`
    dual_clip: float = 0.0  # ratio above which A < 0 gets no gradient; 0 is none
    anchor: Literal["behaviour", "proximal"] = "behaviour"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("beta_low", "beta_high", "clip_high"):
            self.require(key, getattr(self, key) >= 0, "0 or above")
        self.require("clip", self.clip > 0, "above 0")
        self.require("dual_clip", self.dual_clip == 0 or self.dual_clip > 1, "0 (none) or above 1")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.anchor == "proximal" else "behaviour"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        anchor = d.proximal_logp if self.anchor == "proximal" else d.behaviour_logp
        ratio = importance_ratio(d.target_logp, anchor)
        objective, outside = clipped_surrogate(ratio, d.advantage, self.clip, self.clip_high or None)
        share = (d.advantage > 0).to(ratio.dtype) * (self.beta_high - self.beta_low) + self.beta_low
        held = share * objective.detach() * (d.target_logp - d.target_logp.detach()).exp()
        objective, silent = held.where(outside > 0, objective), outside * (share == 0).to(ratio.dtype)
        if self.dual_clip:
            objective, silent = dual_clip(objective, silent, ratio, d.advantage, self.dual_clip)
        return PolicyLoss(-objective, {"clipped": silent, "truncated": outside})
