"""The bit chain: an episode is H binary decisions, and succeeds when enough of them are 1."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar

from staleharness.chain.spec import ChainSpec
from staleharness.chain.task import ChainTask
from staleharness.task import ENVS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@ENVS.register("bit_chain")
class BitChain(ChainTask):
    """H binary decisions, one reward at the end: 1 if at least a share f of them are 1, else 0.

    The policy is a table of H logits, one per position. Positions share no parameters, so the noise of an update grows
    with the horizon, as it does for long completions. (One logit for all positions would make every horizon a problem
    of one dimension.) All logits start at the value that gives the success probability `start`, so that a longer chain
    does not have a rarer reward.
    """

    paper = "after the horizon simulation in a survey of asynchronous RL by Huang; see arXiv:2602.17616"
    ids: ClassVar[dict[str, str]] = {"bit-chain": "binary decisions in a row, one reward at the end; no simulator"}

    @staticmethod
    def needed(spec: ChainSpec) -> int:
        """Return the number of ones that an episode needs: f·H rounded up, and at least one."""
        return max(1, math.ceil(round(spec.share * spec.horizon, 9)))

    def outcome(self, spec: ChainSpec, bits: NDArray[np.bool_]) -> NDArray[np.bool_]:
        enough: NDArray[np.bool_] = bits.sum(1) >= self.needed(spec)
        return enough

    def success_probability(self, spec: ChainSpec, p: NDArray[np.float64]) -> float:
        """Compute P[Σ bits ≥ f·H] exactly from the distribution of the sum (Poisson binomial), decision by decision."""
        import numpy as np

        chance = np.zeros(len(p) + 1)  # probability of each number of ones so far
        chance[0] = 1.0
        for one in p.tolist():
            chance[1:] = chance[1:] * (1.0 - one) + chance[:-1] * one
            chance[0] *= 1.0 - one
        return float(min(1.0, chance[self.needed(spec) :].sum()))

    def start(self, spec: ChainSpec) -> float:
        """Find by bisection the probability of a 1 at which the success probability is `spec.start`."""
        h, low, high = spec.horizon, 0.0, 1.0
        ways = [
            math.lgamma(h + 1) - math.lgamma(k + 1) - math.lgamma(h - k + 1) for k in range(self.needed(spec), h + 1)
        ]
        for _ in range(60):
            p = (low + high) / 2.0
            odds = [w + k * math.log(p) + (h - k) * math.log1p(-p) for k, w in enumerate(ways, self.needed(spec))]
            low, high = (p, high) if math.fsum(map(math.exp, odds)) < spec.start else (low, p)
        return (low + high) / 2.0
