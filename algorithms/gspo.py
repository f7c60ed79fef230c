from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, log_ratio
from staleharness.weights import level_log_ratio


@ALGORITHMS.register("gspo")
@dataclass(frozen=True)
class GSPO(Algorithm):
    """GSPO: PPO's clip on the geometric mean of a completion's ratios, so that a completion is clipped as a whole.

    Maximises  min(s_t A, clip(s_t, 1 − ε, 1 + ε_high)A)  with s_t = sg(s) π_t/sg(π_t), s = (Π_t r_t)^(1/T) (Zheng et
    al. 2025, the token-level variant): s_t has the value of s, and each token has the gradient s A ∇log π_t. Averaged
    over a completion's tokens, that is the gradient of s A.

    The bounds are the paper's; s differs from 1 far less than token ratios do. On control a row is one decision and the
    default bounds are PPO's with ε = 3e-4, which clips nearly everything after the first step: set PPO's ε there.
    r = π/μ, or π/π_prox with `anchor = proximal` (verl recomputes it by default). verl always averages over a
    completion's tokens, then over completions: `SET=aggregation=seq-mean-token-mean`.
    """

    paper = "Zheng et al. 2025, arXiv:2507.18071"
    core: ClassVar[bool] = False

    clip: float = 3e-4  # ε
    clip_high: float = 4e-4  # ε above 1; 0 is the same as `clip`
    anchor: Literal["behaviour", "proximal"] = "behaviour"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("clip", self.clip > 0, "above 0")
        self.require("clip_high", self.clip_high >= 0, "0 (the same as clip) or above")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.anchor == "proximal" else "behaviour"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        anchor = d.proximal_logp if self.anchor == "proximal" else d.behaviour_logp
        of_row = level_log_ratio(log_ratio(d.target_logp.detach(), anchor), d.mask, "geometric").exp()
        ratio = of_row * (d.target_logp - d.target_logp.detach()).exp()
        objective, clipped = clipped_surrogate(ratio, d.advantage, self.clip, self.clip_high or None)
        return PolicyLoss(-objective, {"clipped": clipped, "sequence_ratio": of_row})
