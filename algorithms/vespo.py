from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import log_ratio
from staleharness.weights import level_log_ratio


@ALGORITHMS.register("vespo")
@dataclass(frozen=True)
class VESPO(Algorithm):
    """VESPO: a smooth function of a completion's importance weight, which rises to a peak and falls again.

    Maximises  sg(φ(W)) A log π,  φ(W) = e^λ W^k e^(−λW),  W = Π_t π_t/μ_t of the whole completion (Shen et al. 2026).
    φ(1) = 1; the peak is at W = k/λ, and both small and large W count less. (k, λ) = (2, 3) where A ≥ 0, (3, 2) where
    A < 0: the defaults of the authors' code (recipe/vespo/code/core_algos.py:39 at aa1f304, whose docstring gives other
    numbers than the code) and of TRL (grpo_trainer.py:2943 at f2cd577). Both have W against μ, as they multiply π/π_old
    by π_old/μ. TRL with `token_mask` adds −18.4 as the log weight of a masked token: one masked token removes the
    gradient of its completion. Checked against both codes.
    """

    paper = "Shen et al. 2026, arXiv:2602.10693"
    core: ClassVar[bool] = False

    k_positive: float = 2.0  # k where A ≥ 0, the power of W
    lambda_positive: float = 3.0  # λ where A ≥ 0, the rate of decay for large W
    k_negative: float = 3.0  # k where A < 0
    lambda_negative: float = 2.0  # λ where A < 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("k_positive", "lambda_positive", "k_negative", "lambda_negative"):
            self.require(key, getattr(self, key) >= 0, "0 or above")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        log_w = level_log_ratio(log_ratio(d.target_logp.detach(), d.behaviour_logp), d.mask, "sequence")
        bad = (d.advantage < 0).to(log_w.dtype)
        k = self.k_positive + (self.k_negative - self.k_positive) * bad
        rate = self.lambda_positive + (self.lambda_negative - self.lambda_positive) * bad
        weight = (rate + k * log_w - rate * log_w.exp()).exp()
        return PolicyLoss(-weight * d.advantage * d.target_logp, {"importance_weight": weight})
