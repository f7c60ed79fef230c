from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import KLEstimator, effective_sample_size, importance_ratio, kl_divergence
from staleharness.weights import truncated


@ALGORITHMS.register("p3o")
@dataclass(frozen=True)
class P3O(Algorithm):
    """P3O: the minibatch's effective sample size sets both the truncation of the weights and the penalty.

    Maximises  sg(min(w, c)) A log π − (1 − ESS) KL[μ ‖ π],  w = π/μ, ESS = (Σw)²/(n Σw²) (Fakoor et al. 2019). On fresh
    data ESS = 1, which is plain policy gradient; the staler the data, the stronger the penalty on leaving the policy
    that sampled them, without a hyper-parameter.

    c is ESS in the paper (`ess`), and 1 in the released code unless a flag is on (`one`). The paper alternates steps on
    fresh and on replayed data; here the lag model draws each minibatch. The code's penalty is the reverse, KL[π ‖ μ]
    (`self.kl_loss(beta_logs.detach(), pi_probs)` at 97d18c5, Gluon's KLDivLoss); the direction here is the paper's.
    """

    paper = "Fakoor et al. 2019, UAI, arXiv:1905.01756"
    core: ClassVar[bool] = False

    cap: Literal["ess", "one"] = "ess"  # c
    kl_coef: float = 1.0  # factor on the penalty; 1 is the paper's
    estimator: KLEstimator = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("kl_coef", self.kl_coef >= 0, "0 or above")

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        ratio = importance_ratio(d.target_logp, d.behaviour_logp).detach()
        ess = float(effective_sample_size(ratio, d.mask))
        weight, cut = truncated(ratio, ess if self.cap == "ess" else 1.0)
        kl = kl_divergence(d, "behaviour", self.estimator)
        loss = self.kl_coef * (1.0 - ess) * kl - weight * d.advantage * d.target_logp
        return PolicyLoss(loss, {"truncated": cut, "kl": kl, "ess": ratio.new_full(ratio.shape, ess)})
