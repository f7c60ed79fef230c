from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from staleharness.algorithm import ALGORITHMS, Algorithm, option
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import log_ratio

if TYPE_CHECKING:
    from torch import Tensor


@ALGORITHMS.register("prime_rl")
@dataclass(frozen=True)
class PrimeRL(Algorithm):
    """prime-rl's default loss: DPPO's mask on probabilities, and a quadratic pull back to the policy that sampled.

    Maximises  m w A − τ log² w,  w = π/μ, with m = 0 where A > 0 and π − μ > δ or A < 0 and π − μ < −δ. The penalty
    pulls masked decisions, too. The weight is not truncated.
    Loss and defaults are those of prime-rl (src/prime_rl/trainer/rl/loss.py:109 at 559b447), which sums over tokens and
    divides by all: token-mean. A density has no absolute scale: on control π − μ is w − 1. How sure: code read.
    """

    paper = "prime-rl, loss.py; the mask of Qi et al. 2026, arXiv:2602.04879"
    core: ClassVar[bool] = False

    delta: float = option(0.2, least=0)  # δ, change of a token's probability from which it is masked
    tau: float = option(1e-3, least=0)  # τ, of the penalty log² w

    def far(self, change: Tensor, advantage: Tensor) -> Tensor:
        """True where a change of probability [B, T] is masked."""
        return ((advantage > 0) & (change > self.delta)) | ((advantage < 0) & (change < -self.delta))

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        log_w = log_ratio(d.target_logp, d.behaviour_logp)
        change = log_w.detach().exp() - 1.0
        if d.analytic_kl is None:
            change = d.target_logp.detach().exp() - d.behaviour_logp.exp()
        masked = self.far(change, d.advantage).to(log_w.dtype)
        penalty = self.tau * log_w.square()
        loss = -(1.0 - masked) * log_w.exp() * d.advantage + penalty
        return PolicyLoss(loss, {"clipped": masked, "penalty": penalty})


@ALGORITHMS.register("ipo")
@dataclass(frozen=True)
class IPO(PrimeRL):
    """prime-rl's IPO loss: tokens whose probability moved too far are masked whichever way, with the same pull back.

    Maximises  m w A − τ log² w,  with m = 0 where |π − μ| > δ, also where a step would lead back
    (src/prime_rl/trainer/rl/loss.py:164 at 559b447). No paper of this name is meant. How sure: code read.
    """

    paper = "prime-rl, loss.py"

    delta: float = option(0.1, least=0)  # δ, change of a token's probability from which it is masked

    def far(self, change: Tensor, advantage: Tensor) -> Tensor:
        return change.abs() > self.delta
