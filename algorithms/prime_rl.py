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
    """prime-rl's default loss: DPPO's mask on probabilities, and a quadratic penalty that keeps π near μ.

    Maximises  m w A − τ log² w,  w = π/μ, with m = 0 where A > 0 and π − μ > δ or A < 0 and π − μ < −δ. The penalty
    also applies to masked decisions. The weight is not truncated.

    Loss and defaults are those of prime-rl (src/prime_rl/trainer/rl/loss.py:109 at 559b447), which divides the sum over
    tokens by the number of all tokens: token-mean. A density has no absolute scale, so on control w − 1 replaces π − μ.
    Checked against the code.
    """

    paper = "prime-rl, loss.py; the mask of Qi et al. 2026, arXiv:2602.04879"
    core: ClassVar[bool] = False

    delta: float = option(0.2, least=0)  # δ, change in a token's probability above which it is masked
    tau: float = option(1e-3, least=0)  # τ, coefficient of the penalty log² w

    def far(self, change: Tensor, advantage: Tensor) -> Tensor:
        """Return true where a change in probability [B, T] is masked."""
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
    """prime-rl's IPO loss: a mask on changes of probability in both directions, with the same quadratic penalty.

    Maximises  m w A − τ log² w,  with m = 0 where |π − μ| > δ, even if a step would reduce the difference
    (src/prime_rl/trainer/rl/loss.py:164 at 559b447). The name does not refer to a paper. Checked against the code.
    """

    paper = "prime-rl, loss.py"

    delta: float = option(0.1, least=0)  # δ, change in a token's probability above which it is masked

    def far(self, change: Tensor, advantage: Tensor) -> Tensor:
        return change.abs() > self.delta
