from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss


@ALGORITHMS.register("oapl")
@dataclass(frozen=True)
class OAPL(Algorithm):
    """OAPL: regression of a completion's log-ratio to the lagged sampler on its optimal advantage; no weight, no clip.

    Minimises  (β₂ Σ_t log(π_t/μ_t) − (R − V*))²  per completion, V* = β₁ log mean_j e^(R_j/β₁) over the completions of
    the prompt (Ritter et al. 2026, eqs. 2 and 3). At its minimum π ∝ μ e^(A*/β₂), which maximises reward less β₂ times
    the KL to the policy that sampled. Data of any lag are valid, each with its own μ.

    A row's loss is spread evenly over its decisions, so that their sum is the paper's. A token's gradient coefficient
    is 2β₂(R − V* − β₂ Σ log w), 2e-3 of an advantage, so the method needs its own learning rate. The run's advantage is
    not used. The paper copies the weights to the sampler every L = 50 steps: `LAG=sync:…`. The equations are the
    paper's, as two other implementations restate them.
    """

    paper = "Ritter et al. 2026, arXiv:2602.19362"
    core: ClassVar[bool] = False
    policy_gradient: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    beta_value: float = 1.0  # β₁, temperature of V*: the group's best reward near 0, its mean at ∞
    beta: float = 1e-3  # β₂, coefficient of the KL between π and μ, reward per nat

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("beta_value", "beta"):
            self.require(key, getattr(self, key) > 0, "above 0")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        assert d.group is not None and d.outcome is not None
        length = d.mask.sum(1)
        peers = (d.group[:, None] == d.group[None, :]) & (length > 0)[None, :]
        scaled = (d.outcome / self.beta_value)[None, :].expand(peers.shape).masked_fill(~peers, -math.inf)
        count = peers.sum(1).clamp(min=1).to(scaled.dtype)
        best = self.beta_value * (scaled.logsumexp(1) - count.log())
        best = best.where(peers.any(1), d.outcome)
        moved = ((d.target_logp - d.behaviour_logp) * d.mask).sum(1)
        error = (self.beta * moved - (d.outcome - best))[:, None]
        loss = error.square() / length[:, None].clamp(min=1.0)
        return PolicyLoss(loss.expand(d.mask.shape), {"regression_error": error.abs().expand(d.mask.shape)})
