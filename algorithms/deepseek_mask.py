from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, importance_ratio, log_ratio
from staleharness.weights import row_mean


@ALGORITHMS.register("deepseek_mask")
@dataclass(frozen=True)
class DeepSeekMask(Algorithm):
    """DeepSeek-V3.2's off-policy sequence mask: PPO-clip that leaves out bad completions which have become unlikely.

    Maximises  m min(rA, clip(r, 1 − ε, 1 + ε_high)A)  with m = 0 where A < 0 and (1/T) Σ_t log(μ_t/π_t) > delta, else 1
    (DeepSeek-AI 2025, eq. 9). The mean is over the completion. The policy thus learns only from bad completions that it
    is still likely to sample.

    The mask must compare with the recorded μ: with a policy that is recomputed before a batch's only step, the mean is
    always 0. `anchor` affects PPO's ratio alone. The paper gives no delta: TRL uses 0.5, slime 1e-4, which masks nearly
    every bad completion whose probability has decreased at all. A δ that is never reached is PPO.
    """

    paper = "DeepSeek-AI 2025, arXiv:2512.02556"
    core: ClassVar[bool] = False

    delta: float = 0.5  # nats per token
    clip: float = 0.2  # ε
    clip_high: float = 0.0  # ε above ratio 1; 0 is the same as `clip`
    anchor: Literal["behaviour", "proximal"] = "behaviour"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("delta", "clip_high"):
            self.require(key, getattr(self, key) >= 0, "0 or above")
        self.require("clip", self.clip > 0, "above 0")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.anchor == "proximal" else "behaviour"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        anchor = d.proximal_logp if self.anchor == "proximal" else d.behaviour_logp
        ratio = importance_ratio(d.target_logp, anchor)
        objective, clipped = clipped_surrogate(ratio, d.advantage, self.clip, self.clip_high or None)
        departed = row_mean(log_ratio(d.behaviour_logp, d.target_logp.detach()), d.mask) > self.delta
        masked = (departed & (d.advantage < 0)).to(ratio.dtype)
        return PolicyLoss(-(1.0 - masked) * objective, {"masked": masked, "clipped": clipped.maximum(masked)})
