from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss


@ALGORITHMS.register("dg")
@dataclass(frozen=True)
class DelightfulGradient(Algorithm):
    """DG, delightful policy gradient: rare successes count fully, rare failures hardly; no behaviour policy is needed.

    Maximises  sg(σ(−A log π/η)) A log π. −A log π, the advantage times the surprisal under the learner, is large for an
    unlikely success, where the gate is near 1, and far below 0 for an unlikely failure, where it is near 0 (Osband
    2026). Stale and mismatched data hold many unlikely failures: the claim of the distributed form (arXiv:2603.20521)
    is that leaving these out helps more than exact importance weights do.

    The gate is σ(0) = ½ where the action was certain: on fresh data this is no policy gradient. η and the use on single
    tokens are the abstract's and ours: how sure, high for the gate, medium for η = 1. Of the systems read, only
    TorchTrade has it. On control log π is a density's, so the gate depends on the scale of actions.
    """

    paper = "Osband 2026, arXiv:2603.14608"
    core: ClassVar[bool] = False
    policy_gradient: ClassVar[bool] = False

    eta: float = 1.0  # η, the temperature of the gate; ∞ is half the plain policy gradient

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("eta", self.eta > 0, "above 0")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        gate = (-d.advantage * d.target_logp.detach() / self.eta).sigmoid()
        return PolicyLoss(-gate * d.advantage * d.target_logp, {"gate": gate})
