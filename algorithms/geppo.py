from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss, Targets, Trajectories
from staleharness.objectives import importance_ratio, masked_mean, vtrace


@ALGORITHMS.register("geppo")
@dataclass(frozen=True)
class GePPO(Algorithm):
    """Generalised PPO with sample reuse: a narrower clip, centred on the ratio at the start of the phase.

    Maximises  min(wA, clip(w, u − ε', u + ε')A)  with w = π/μ and u = π_prox/μ, the ratio at the start of the phase.
    The clip is additive; decoupled PPO's is u(1 ± ε). ε' = ε / mean(lag + 1) over the minibatch (in the paper, over the
    policy weights), so that reusing data several times changes the policy at most as much as using them once in PPO. A
    is V-trace's (Queeney et al. 2021, Algorithm 1). On fresh data the loss is PPO's.

    After a phase the step size is divided by 1 + `adapt` if ½ E|w − u| > ε'/2, and multiplied by it if ½ E|w − u| is
    below half of that. In the authors' code (7095874) the second threshold is 0 by default (`adapt_minthresh`), so that
    the step size only shrinks. It measures at the end of the phase; here it is the mean over the phase's steps, before
    each: about half as far, with two steps a quarter. Before a single step nothing has moved, so that the step size
    stays. The lag model replaces the paper's policy weights, so none appear here, and the weighted normalisation of A
    in the authors' code is left to the run.
    """

    paper = "Queeney et al. 2021, NeurIPS, arXiv:2111.00072"
    core: ClassVar[bool] = False

    clip: float = 0.2  # ε
    adapt: float = 0.03  # relative change of the step size; 0 leaves it unchanged
    rho_bar: float = 1.0  # truncation of both weights of V-trace

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("clip", "rho_bar"):
            self.require(key, getattr(self, key) > 0, "above 0")
        self.require("adapt", self.adapt >= 0, "0 or above")

    @property
    def proximal(self) -> Proximal:
        return "recompute"

    def init_state(self) -> dict[str, float]:
        return {"step_factor": 1.0}

    def next_state(self, state: Mapping[str, float], diagnostics: Mapping[str, float]) -> dict[str, float]:
        factor, moved = state["step_factor"], diagnostics["moved"]  # ½ E|w − u| in units of ε'/2
        if moved > 1.0:
            factor /= 1.0 + self.adapt
        elif 0.0 < moved < 0.5:  # 0: not measured
            factor *= 1.0 + self.adapt
        return {"step_factor": factor}

    def step_scale(self, d: Decisions) -> float:
        return d.state["step_factor"]

    def targets(self, t: Trajectories) -> Targets:
        return vtrace(t, self.rho_bar, self.rho_bar)

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        epsilon = self.clip / (masked_mean(d.lag, d.mask) + 1.0)
        ratio = importance_ratio(d.target_logp, d.behaviour_logp)
        start = importance_ratio(d.proximal_logp, d.behaviour_logp)
        low, high = start - epsilon, start + epsilon
        objective = (ratio * d.advantage).minimum(ratio.clamp(low, high) * d.advantage)
        outside = ((d.advantage > 0) & (ratio > high)) | ((d.advantage < 0) & (ratio < low))
        is_measured = d.progress.epochs * d.progress.steps > 1  # before a single step w and u differ by rounding alone
        moved = (ratio - start).abs() / epsilon * is_measured
        return PolicyLoss(-objective, {"clipped": outside.to(ratio.dtype), "moved": moved})
