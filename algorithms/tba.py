from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import group_total


@ALGORITHMS.register("tba")
@dataclass(frozen=True)
class TBA(Algorithm):
    """Trajectory balance with asynchrony: a squared loss that is valid for completions of any policy, without a ratio.

    Minimises  (log Ẑ + log π(o) − log π_ref(o) − R/β)²  per completion o, with log-probabilities summed over its tokens
    and log Ẑ = sg mean_j[log π_ref(o_j) − log π(o_j) + R_j/β] over the completions of the prompt (Bartoldson et al.
    2025). A token's gradient coefficient is (2/β)(S − mean_j S_j), S = R − β log(π/π_ref): the reward less a KL
    penalty, relative to the group's mean, whichever policy sampled it. At the optimum π ∝ π_ref exp(R/β).

    A row's loss is spread evenly over its decisions, so that their sum is the paper's; the coefficient is large (2/β),
    and the run's gradient norm limit applies to it. The run's advantage is not used. In the paper's GSM8K runs β falls
    from 0.014 to 0.004 during training; in its constant-lag variant it is 0.005 throughout. Recency-weighted sampling
    and periodic sync are lag models here (`geometric`, `sync`).
    """

    paper = "Bartoldson et al. 2025, arXiv:2503.18929"
    core: ClassVar[bool] = False
    policy_gradient: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"groups", "reference"})

    beta: float = 0.005  # β, temperature of the reward

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("beta", self.beta > 0, "above 0")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        assert d.group is not None and d.outcome is not None and d.reference_logp is not None
        length = d.mask.sum(1)
        there = (length > 0).to(d.mask.dtype)
        gap = ((d.target_logp - d.reference_logp) * d.mask).sum(1) - d.outcome / self.beta  # [B]
        log_z = -group_total(gap.detach() * there, d.group) / group_total(there, d.group).clamp(min=1.0)
        balance = (log_z + gap)[:, None]
        loss = balance.square() / length[:, None].clamp(min=1.0)
        return PolicyLoss(loss.expand(d.mask.shape), {"imbalance": balance.abs().expand(d.mask.shape)})
