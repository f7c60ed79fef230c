from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, importance_ratio, log_ratio, outward

if TYPE_CHECKING:
    from torch import Tensor


@ALGORITHMS.register("m2po")
@dataclass(frozen=True)
class M2PO(Algorithm):
    """M2PO: a budget for the second moment of log-ratios over the minibatch, in place of a clip for each token.

    Over the outward decisions (A > 0 and r > 1, or A < 0 and r < 1), M₂ = mean (log r)² may be `tau` at most. Other
    decisions are never changed. The paper and the released code are two methods:

    `paper`    those with the largest (log r)² are left out until the mean of the rest is at most tau; the
               objective is rA over those that are kept, divided by the number of all. Ties are left out together.
    `release`  if M₂ > tau, PPO's clip at e^(−t) and e^t, with t the largest |log r| in the data for which
               capping all at t brings M₂ below tau; never tighter than 1 − `floor_low`, 1 + `floor_high`.

    r = π/μ, or π/π_prox with `anchor = proximal`. AReaL's port is a third method (all tokens, log π_prox/μ). The budget
    is shared, so whether a decision is left out depends on its minibatch.
    """

    paper = "Zheng et al. 2025, arXiv:2510.01161"
    core: ClassVar[bool] = False

    form: Literal["paper", "release"] = "paper"
    tau: float = 0.04  # nats²
    anchor: Literal["behaviour", "proximal"] = "behaviour"
    floor_low: float = 0.3  # `release` only: the clip is at least this wide below 1
    floor_high: float = 0.5  # `release` only: the clip is at least this wide above 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("tau", "floor_low", "floor_high"):
            self.require(key, getattr(self, key) >= 0, "0 or above")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.anchor == "proximal" else "behaviour"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        anchor = d.proximal_logp if self.anchor == "proximal" else d.behaviour_logp
        ratio = importance_ratio(d.target_logp, anchor)
        moment = log_ratio(d.target_logp.detach(), anchor).square()
        restricted = (outward(ratio.detach(), d.advantage) * d.mask) > 0
        ordered = moment[restricted].sort().values  # [n], smallest first
        if self.form == "paper":
            masked = (restricted & (moment >= self._first_dropped(ordered))).to(ratio.dtype)
            return PolicyLoss(-(1.0 - masked) * ratio * d.advantage, {"clipped": masked})
        t = math.sqrt(self._capped_at(ordered))
        low, high = max(1.0 - math.exp(-t), self.floor_low), max(math.exp(t) - 1.0, self.floor_high)
        objective, clipped = clipped_surrogate(ratio, d.advantage, low, high)
        return PolicyLoss(-objective, {"clipped": clipped})

    def _first_dropped(self, ordered: Tensor) -> float:
        """Return the smallest value that is left out, such that the mean of those below is at most tau; inf if none."""
        over = _running_mean(ordered) > self.tau
        return float(ordered[int(over.nonzero()[0])]) if over.any() else math.inf

    def _capped_at(self, ordered: Tensor) -> float:
        """Return the largest value at which capping all brings their mean below tau; inf if no cap is needed."""
        n = len(ordered)
        if n == 0 or float(ordered.mean()) <= self.tau:
            return math.inf
        above = n - _count(ordered)
        fits = (ordered.cumsum(0) + ordered * above) / n < self.tau
        return float(ordered[fits].max()) if fits.any() else 0.0


def _count(x: Tensor) -> Tensor:
    """Return 1, 2, ... n."""
    return x.new_ones(x.shape).cumsum(0)


def _running_mean(x: Tensor) -> Tensor:
    return x.cumsum(0) / _count(x)
