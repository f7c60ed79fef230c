from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss


@ALGORITHMS.register("dg")
@dataclass(frozen=True)
class DelightfulGradient(Algorithm):
    """DG, delightful policy gradient: nearly full weight for rare successes, little for rare failures, and no use of μ.

    Maximises  sg(σ(−A log π/η)) A log π. −A log π, the advantage times the surprisal under the learner, is far above 0
    for an unlikely success, where the gate is near 1, and far below 0 for an unlikely failure, where the gate is near 0
    (Osband 2026). Stale and mismatched data contain many unlikely failures: the paper on the distributed form
    (arXiv:2603.20521) claims that leaving these out helps more than exact importance weights do.

    The gate is σ(0) = ½ for an action that was certain and varies with A log π otherwise, so that even on fresh data
    this is not the policy gradient. The gate is from the abstract; η = 1 and the use on single tokens are our reading,
    of which we are less sure. Of the systems whose code we read, only TorchTrade has it. On control π is a density, so
    the gate depends on the scale of the actions.
    """

    paper = "Osband 2026, arXiv:2603.14608"
    core: ClassVar[bool] = False
    policy_gradient: ClassVar[bool] = False

    eta: float = 1.0  # η, temperature of the gate; ∞ is half the plain policy gradient

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("eta", self.eta > 0, "above 0")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        gate = (-d.advantage * d.target_logp.detach() / self.eta).sigmoid()
        return PolicyLoss(-gate * d.advantage * d.target_logp, {"gate": gate})
