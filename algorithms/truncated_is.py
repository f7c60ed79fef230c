from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.spec import later
from staleharness.weights import (
    Level,
    batch_normalised,
    engine_surrogate,
    level_log_ratio,
    truncated,
    vetoed,
    weighted_surrogate,
)


@ALGORITHMS.register("seq_is")
@dataclass(frozen=True)
class SequenceIS(Algorithm):
    """Sequence importance sampling: every token weighted by the ratio of the whole completion, untruncated.

    Maximises  sg(w_i) A log π,  w_i = Π_t π_t/μ_t (log w_i clamped to ±20): the unbiased policy gradient from stale
    completions. It is the reference for truncated weights, which trade bias for less variance. Its variance grows with
    length and lag; the effective sample size shows how much of a batch still counts. On control a ratio covers one
    decision and this is plain importance sampling.
    """

    paper = "Precup et al. 2000, ICML; for completions as in VCPO, arXiv:2602.17616"
    core: ClassVar[bool] = False

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        log_w, objective, _ = weighted_surrogate(d, 0.0)
        weight = level_log_ratio(log_w, d.mask, "sequence").exp()
        return PolicyLoss(-weight * objective, {"importance_weight": weight})


@ALGORITHMS.register("tis")
@dataclass(frozen=True)
class TIS(Algorithm):
    """Truncated importance sampling: explicit weights cut to a cap, per token or per completion.

    Maximises  sg(min(w, cap)) A log π  with w = π/μ of the token, of the completion (Π_t w_t, `sequence`) or its
    geometric mean (`geometric`). Truncation only scales a gradient, where a clip or a mask removes it; it is one-sided.

    With `clip` > 0 it is the form of Yao et al. (2025) and of verl's decoupled presets: the weight is π_prox/μ and
    multiplies PPO's objective, clipped at 1 ± `clip` around π_prox.

    The cap is 2 in verl and slime at both levels, 8 in VCPO's sequence form, 5 in SkyRL's, and 3 in TRL's truncating
    modes; by default TRL rejects completions above 3 (`mis_seq[low=0,high=3]`). `normalise` divides by the batch mean
    after truncation (slime's recipe does, verl's default does not). `veto` leaves out completions with a token ratio
    below it (slime: 1e-4). With token level, cap 1 and no clip the weight is IMPALA's. With `low` the weight is cut on
    both sides (OpenRLHF: 0.5 and 5, slime's `tis-clip-low`).

    With `correct=engine` the weight is π_version/μ: the version that acted, as the trainer computes it, against the
    copy that sampled in its place (`MISMATCH`); it is 1 if these are the same. The clip is then around π_version, and
    is the only correction for lag. Other systems do not keep the weights of that version; their π_prox/μ contains lag
    as well.
    """

    paper = "Ionides 2008, J. Comput. Graph. Stat. 17(2); Yao et al. 2025, fengyao.notion.site/off-policy-rl"
    core: ClassVar[bool] = False

    level: Level = "token"
    cap: float = 2.0  # largest weight; 0 is no cap
    clip: float = 0.0  # ε of a PPO clip around the proximal policy; 0 is none
    normalise: bool = False  # weights of mean 1 in each minibatch
    veto: float = 0.0  # a token ratio below which the whole completion is left out; 0 is none
    low: float = later(0.0, before=0.0)  # smallest weight; 0 is no bound
    correct: Literal["all", "engine"] = later("all", before="all")  # corrects lag and engine, or the engine alone

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("cap", "clip", "veto"):
            self.require(key, getattr(self, key) >= 0, "0 (none) or above")
        self.require("low", 0 <= self.low <= (self.cap or self.low), "0 (no bound) or above, and at most cap")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.correct == "all" and self.clip else "behaviour"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        if self.correct == "all":
            log_w, objective, clipped = weighted_surrogate(d, self.clip)
        else:
            log_w, objective, clipped = engine_surrogate(d, self.clip)
        weight, cut = truncated(level_log_ratio(log_w, d.mask, self.level).exp(), self.cap)
        if self.low:
            weight, cut = weight.clamp(min=self.low), cut.maximum((weight < self.low).to(cut.dtype))
        if self.normalise:
            weight = batch_normalised(weight, d.mask, self.level)
        out = vetoed(log_w, d.mask, self.veto)
        diagnostics = {"truncated": cut, "vetoed": out, "importance_weight": weight}
        return PolicyLoss(-weight * (1.0 - out) * objective, diagnostics | {"clipped": clipped.maximum(out)})
