from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import effective_sample_size, log_ratio, sequence_log_ratio

if TYPE_CHECKING:
    from torch import Tensor


@ALGORITHMS.register("vcpo")
@dataclass(frozen=True)
class VCPO(Algorithm):
    """VCPO: truncated sequence importance sampling, a step size scaled by the ESS, and a baseline of least variance.

    Maximises  sg(min(w_i, cap)) A_i Σ_t log π_t  with w_i = Π_t π_t/μ_t, no clip. Two additions:

    The step size is multiplied by √min(1, ρ/ρ_on), ρ = ESS/B of the *untruncated* w of the minibatch (eq. 5).
    log w is limited to ±20: where it is beyond for all completions, their weights are equal, and the step is full.

    The baseline of a group minimises the variance of the off-policy gradient, b* = Σ w_i² ‖g_i‖² R_i / Σ w_i² ‖g_i‖²
    with  g_i = ∇ log π(o_i), and A_i = (R_i − b*)/σ, which is 0 if all rewards of the group are equal. The learner
    computes ‖g_i‖ and the step in one backward pass over each completion. The released code measures gradients that
    already contain the truncated weight and 1/length, so that its weights are w_i² min(w_i, cap)² ‖g_i‖²/L_i²
    (`release`).

    Use `aggregation = seq-mean-token-mean` with it, as the paper does.
    """

    paper = "Huang et al. 2026, arXiv:2602.17616"
    core: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    cap: float = 8.0  # largest sequence weight in the loss
    baseline: Literal["paper", "release", "group"] = "paper"  # group: the run's own baseline, at no extra cost
    rule: Literal["sqrt", "linear"] = "sqrt"
    on_policy_ess: float = 1.0  # ρ_on, as a share of the minibatch; 0.55 in the paper's multi-turn runs

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("cap", self.cap >= 1, "at least 1")
        self.require("on_policy_ess", 0 < self.on_policy_ess <= 1, "above 0 and at most 1")

    @property
    def optimal_baseline(self) -> bool:
        return self.baseline != "group"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        weight = self._weight(d)[:, None]
        truncated = (weight > self.cap).to(weight.dtype).expand(d.mask.shape)
        return PolicyLoss(-weight.clamp(max=self.cap) * d.advantage * d.target_logp, {"truncated": truncated})

    def row_baseline(self, d: Decisions, squared_norm: Tensor) -> Tensor:
        assert d.outcome is not None
        weight = self._weight(d)
        if self.baseline == "release":
            share = weight.square() * squared_norm / d.mask.sum(1).clamp(min=1.0).square()
        else:
            share = weight.square() * squared_norm / weight.clamp(max=self.cap).square()
        total = share.sum()
        return (share * d.outcome).sum() / total if total > 0 else d.outcome.mean()

    def step_scale(self, d: Decisions) -> float:
        weight = self._weight(d)
        ess = effective_sample_size(weight, (d.mask.sum(1) > 0).to(weight.dtype))
        share = min(1.0, float(ess) / self.on_policy_ess)
        return share**0.5 if self.rule == "sqrt" else share

    @staticmethod
    def _weight(d: Decisions) -> Tensor:
        """Return w [B] of whole completions, untruncated."""
        return sequence_log_ratio(log_ratio(d.target_logp.detach(), d.behaviour_logp), d.mask).exp()
