from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal, Stop
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import importance_ratio, masked_mean

if TYPE_CHECKING:
    from torch import Tensor


@ALGORITHMS.register("espo")
@dataclass(frozen=True)
class ESPO(Algorithm):
    """ESPO: no clip; training on a phase's data stops once the ratios are too far from 1 on average.

    Maximises  rA  and ends the epochs over a phase's data at the first minibatch with  E|r − 1| > δ  (Sun et al. 2022),
    r = π/μ, or π/π_prox with `anchor = proximal`. With r = π/μ, E|r − 1| is twice the total variation.

    In the paper μ and π_prox are the same policy. With stale data and μ as the anchor, E|r − 1| is above 0 before the
    first step; if it is above δ, no step is taken in that phase. With π_prox as the anchor training continues, but
    nothing corrects for μ. `every = epoch` ends only the epoch; later epochs check again. (Two later methods, of 2025
    and 2026, have the same acronym.)
    """

    paper = "Sun et al. 2022, arXiv:2202.00079"
    core: ClassVar[bool] = False

    delta: float = 0.25  # δ, largest mean |r − 1| of a minibatch
    anchor: Literal["behaviour", "proximal"] = "behaviour"
    every: Literal["phase", "epoch"] = "phase"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("delta", self.delta > 0, "above 0")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.anchor == "proximal" else "behaviour"

    def stop(self, d: Decisions) -> Stop:
        strayed = float(masked_mean(self._ratio(d).detach().sub(1.0).abs(), d.mask)) > self.delta
        return self.every if strayed else "no"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        ratio = self._ratio(d)
        return PolicyLoss(-ratio * d.advantage, {"strayed": (ratio.detach() - 1.0).abs()})

    def _ratio(self, d: Decisions) -> Tensor:
        anchor = d.proximal_logp if self.anchor == "proximal" else d.behaviour_logp
        return importance_ratio(d.target_logp, anchor)
