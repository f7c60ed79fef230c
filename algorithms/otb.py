from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import group_total, log_ratio
from staleharness.weights import level_log_ratio, truncated


@ALGORITHMS.register("otb")
@dataclass(frozen=True)
class OTB(Algorithm):
    """Optimal token baseline: at each position, the baseline with the least gradient variance over the prompt's group.

    Maximises  u (R − B_t) log π_t,  B_t = Σ_i R_i W_it / Σ_i W_it over the completions of the prompt that reach t, with
    W_it = Σ_{j ≤ t} u_ij² (1 − 2π_ij + Σ_v π(v)²): the squared norm, with respect to the logits, of the gradient up to
    t, times the squared importance weight u. It replaces the run's advantage; R is the outcome, γ = λ = 1.

    u is the truncated ratio sg(min(w, cap)) of the token or the completion, or 1 (`none`). A completion without others
    of its prompt has no baseline. `zero_tail` is as in verl: beyond the end of all other completions of its group, the
    longest would be its own baseline and have gradient 0, so it has no baseline there. The VCPO paper reports that
    training with this baseline collapses at lags of 10 and 12.
    """

    paper = "Li et al. 2026, arXiv:2602.07078"
    core: ClassVar[bool] = False
    policy_gradient: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"groups", "logit_norm"})

    level: Literal["none", "token", "sequence"] = "token"
    cap: float = 2.0  # largest weight; 0 is no cap
    zero_tail: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("cap", self.cap >= 0, "0 (no cap) or above")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        assert d.group is not None and d.outcome is not None and d.logit_norm is not None
        log_w = log_ratio(d.target_logp.detach(), d.behaviour_logp)
        weight, cut = log_w.new_ones(log_w.shape), log_w.new_zeros(log_w.shape)
        if self.level != "none":
            weight, cut = truncated(level_log_ratio(log_w, d.mask, self.level).exp(), self.cap)
        norm = 1.0 - 2.0 * d.target_logp.detach().exp() + d.logit_norm
        energy = (weight.square() * norm * d.mask).cumsum(1) * d.mask
        outcome = d.outcome[:, None]
        baseline = group_total(outcome * energy, d.group) / (group_total(energy, d.group) + 1e-8)
        others = group_total(d.mask if self.zero_tail else (d.mask.amax(1, keepdim=True)), d.group) > 1
        advantage = outcome - baseline * others
        loss = -weight * advantage * d.target_logp
        return PolicyLoss(loss, {"truncated": cut, "token_baseline": baseline * others})
