from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from staleharness.algorithm import ALGORITHMS, Algorithm, option
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, importance_ratio

if TYPE_CHECKING:
    from torch import Tensor


@ALGORITHMS.register("gac")
@dataclass(frozen=True)
class GAC(Algorithm):
    """Gradient alignment control: PPO-clip without the gradient's component along the previous step's gradient.

    With g and g' the policy's gradients of this step and of the step before, and c their cosine, the step is along

        0   where c > skip,     g − share (g·g'/|g'|²) g'   else where c > aligned,     g   otherwise.

    Gradients on stale data stay aligned from step to step, while those on fresh data are nearly orthogonal; aligned
    steps add up and overshoot (Xu et al. 2026). The loss is PPO's clip around μ, which with group-relative advantages
    is GRPO's. The norm is clipped afterwards, and a critic's gradient is not changed.

    g' is the gradient of the loss, before any projection. The projection is from the paper's abstract; skipping steps
    at high alignment is from a secondary source. No source gives thresholds, so by default every aligned step is
    projected and none is skipped. With momentum, Adam moves even if the gradient is 0.
    """

    paper = "Xu et al. 2026, arXiv:2603.01501"
    core: ClassVar[bool] = False

    aligned: float = option(0.0, least=-1, most=1)  # cosine above which the gradient is projected
    share: float = option(1.0, least=0, most=1)  # of the component along the previous gradient that is removed
    skip: float = option(1.0, least=-1, most=1)  # cosine above which the gradient is set to 0; 1 is never
    clip: float = option(0.2, above=0)  # ε
    clip_high: float = option(0.0, least=0)  # ε above ratio 1; 0 is the same as `clip`

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        ratio = importance_ratio(d.target_logp, d.behaviour_logp)
        objective, clipped = clipped_surrogate(ratio, d.advantage, self.clip, self.clip_high or None)
        return PolicyLoss(-objective, {"clipped": clipped})

    def gradient(self, previous: Tensor, now: Tensor) -> Tensor:
        length = previous.norm().clamp(min=1e-30)
        along = previous / length
        cosine = now.dot(along) / now.norm().clamp(min=1e-30)
        if self.skip < 1.0 and cosine > self.skip:
            return now.new_zeros(now.shape)
        return now - self.share * now.dot(along) * along if cosine > self.aligned else now
