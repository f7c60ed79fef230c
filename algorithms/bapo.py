from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal, option
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, dual_clip, importance_ratio


@ALGORITHMS.register("bapo")
@dataclass(frozen=True)
class BAPO(Algorithm):
    """BAPO: PPO's clip, with bounds raised in each minibatch until A > 0 has a given share of the objective.

    Maximises  min(rA, clip(r, c_low, c_high)A). Starting at `low` and `high`, the bounds rise by `step`, first c_high
    up to `high_most`, then c_low up to `low_most`, as long as Σ |min(…)| over A > 0 is less than `share` of Σ |min(…)|
    over all.

    Raising c_low cannot help: where A < 0 the term is −max(r, c_low)|A|, so that part of the sum grows, and the search
    over c_low always runs to its end. `form = release` (recipe/bapo/policy_loss.py at 7287044) raises c_low first and
    adds verl's dual clip at 3. The ranges below are those of its README. Its configuration has [0.6, 0.8], [1.2, 2] and
    `adv_ratio_target` 1, of A > 0 over A < 0, which is `share` = 1/2; run_bapo_example.sh has [0.8, 0.95], [1.2, 2] and
    0.5, which is `share` = 1/3. r = π/μ, or π/π_prox with `anchor = proximal`. Checked against the released code; the
    paper's order is from notes on the paper.
    """

    paper = "Xi et al. 2025, arXiv:2510.18927, algorithm 1"
    core: ClassVar[bool] = False

    step: float = option(0.05, above=0)  # increment of a bound
    low: float = 0.6  # initial c_low
    low_most: float = 0.9  # largest c_low
    high: float = 1.2  # initial c_high
    high_most: float = 3.0  # largest c_high
    share: float = option(0.5, least=0, most=1)  # least share of Σ |objective| for decisions with A > 0
    form: Literal["paper", "release"] = "paper"
    anchor: Literal["behaviour", "proximal"] = "behaviour"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("low_most", 0 <= self.low <= self.low_most <= 1, "between low and 1")
        self.require("high_most", 1 <= self.high <= self.high_most, "at least high, which is at least 1")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.anchor == "proximal" else "behaviour"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        ratio = importance_ratio(d.target_logp, d.proximal_logp if self.anchor == "proximal" else d.behaviour_logp)
        at, most = {"low": self.low, "high": self.high}, {"low": self.low_most, "high": self.high_most}
        for key in ("high", "low") if self.form == "paper" else ("low", "high"):
            while at[key] < most[key]:
                objective, _ = clipped_surrogate(ratio.detach(), d.advantage, 1.0 - at["low"], at["high"] - 1.0)
                size = objective.abs() * d.mask
                if (size * (d.advantage > 0)).sum() / size.sum().clamp(min=1e-8) >= self.share:
                    break
                at[key] = min(at[key] + self.step, most[key])
        objective, outside = clipped_surrogate(ratio, d.advantage, 1.0 - at["low"], at["high"] - 1.0)
        if self.form == "release":
            objective, outside = dual_clip(objective, outside, ratio, d.advantage, 3.0)
        bounds = {f"bound_{side}": ratio.new_full(ratio.shape, bound) for side, bound in at.items()}
        return PolicyLoss(-objective, {"clipped": outside, **bounds})
