"""PPO whose clip narrows to nothing over the run: a plugin that asks how far the run is."""

from __future__ import annotations

from dataclasses import dataclass

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, importance_ratio


@ALGORITHMS.register("annealed_clip")
@dataclass(frozen=True)
class AnnealedClip(Algorithm):
    """PPO-clip around μ with ε (1 − share of the phases done)."""

    paper = "a test of staleharness"

    clip: float = 0.2  # ε of the first phase

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        epsilon = self.clip * (1.0 - d.progress.phase / d.progress.phases)
        ratio = importance_ratio(d.target_logp, d.behaviour_logp)
        objective, clipped = clipped_surrogate(ratio, d.advantage, epsilon)
        return PolicyLoss(-objective, {"clipped": clipped})
