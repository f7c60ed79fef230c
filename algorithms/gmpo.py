from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import log_ratio
from staleharness.weights import row_mean


@ALGORITHMS.register("gmpo")
@dataclass(frozen=True)
class GMPO(Algorithm):
    """GMPO: a completion is weighted by the geometric mean of its ratios, each of which is clipped first.

    Maximises  G A  per completion, G = exp(mean_t ℓ_t), where ℓ_t is log r_t cut at +ε_high where A > 0 and at −ε where
    A < 0 (Zhao et al. 2025). The gradient coefficient of a token is G A, or 0 if it was cut; GSPO's clip removes the
    gradient of the whole completion.

    ε is 0.4 on both sides, for the logarithm: e^0.4 = 1.49. A is the completion's advantage; if decisions have their
    own, each is multiplied by its own (verl averages them). verl's `geo_mean` (core_algos.py:1927 at 1dda039) reads its
    run's clip ratio, 0.2 by default, and always averages over completions: `SET=aggregation=seq-mean-token-mean`.
    r = π/μ, or π/π_prox with `anchor = proximal`, as in verl. Checked against the code.
    """

    paper = "Zhao et al. 2025, arXiv:2507.20673"
    core: ClassVar[bool] = False

    clip: float = 0.4  # ε, of log r
    clip_high: float = 0.0  # ε of log r above 0; 0 is the same as `clip`
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
        log_r = log_ratio(d.target_logp.detach(), anchor)
        above = (d.advantage > 0) & (log_r > (self.clip_high or self.clip))
        below = (d.advantage < 0) & (log_r < -self.clip)
        cut = log_r.masked_fill(above, self.clip_high or self.clip).masked_fill(below, -self.clip)
        of_row = row_mean(cut, d.mask).exp()
        outside = (above | below).to(log_r.dtype)
        ratio = of_row * ((1.0 - outside) * (d.target_logp - d.target_logp.detach())).exp()
        return PolicyLoss(-ratio * d.advantage, {"clipped": outside, "sequence_ratio": of_row})
