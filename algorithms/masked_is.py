from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal
from staleharness.batch import Decisions, PolicyLoss
from staleharness.spec import later
from staleharness.weights import (
    Level,
    batch_normalised,
    binary_kl,
    engine_surrogate,
    kept_share,
    level_log_ratio,
    outside,
    row_mean,
    truncated,
    vetoed,
    weighted_surrogate,
)

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Rejecting(Algorithm):
    """Masked policy gradient: decisions that a rule rejects are left out, and the others have an importance weight.

    Maximises  m u A log π  with a mask m and a weight u; with `clip` > 0 (IcePop's paper, verl's decoupled presets) all
    ratios are π_prox/μ and m u multiplies PPO's objective, clipped at 1 ± `clip` around π_prox. The mask has no
    gradient.

    Implementations differ in the `denominator`: with `all` (verl, slime, miles, AReaL) rejected decisions still count
    in the mean, so that rejecting shrinks the step; with `kept` (verl's legacy trainer in decoupled mode, whose
    rejection edits the mask that is counted) they do not. `kept` is exact if the run averages over tokens.

    `kpop` = δ also leaves out tokens whose binary KL (this token against all others) from μ or to μ is above δ nats, in
    addition to the method's own rule (`low=0,high=0` switches a window off). This is AReaL's `binary_kl`, which AReaL's
    own configuration check refuses. On control π is a density, for which this bound means little. The formula is from
    notes on the code.

    With `correct=engine` all ratios are π_version/μ: the version that acted, as the trainer computes it, against the
    copy that sampled in its place (`MISMATCH`). The clip is then around π_version, and is the only correction for lag.
    """

    paper = "Liu et al. 2025, yingru.notion.site, on training-inference mismatch; verl's rollout correction"
    core: ClassVar[bool] = False

    denominator: Literal["all", "kept"] = "all"
    veto: float = 0.0  # a token ratio below which the whole completion is left out (slime: 1e-4); 0 is none
    normalise: bool = False  # weights of mean 1 in each minibatch, before anything is rejected
    clip: float = 0.0  # ε of a PPO clip around the proximal policy; 0 is none
    correct: Literal["all", "engine"] = later("all", before="all")  # corrects lag and engine, or the engine alone
    kpop: float = later(0.0, before=0.0)  # largest binary KL of a token, nats; 0 is no bound

    weight_level: ClassVar[Level | None] = None  # None: kept decisions have weight 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("veto", "clip"):
            self.require(key, getattr(self, key) >= 0, "0 (none) or above")
        self.require("kpop", self.kpop >= 0, "0 (no bound) or above")

    @property
    def proximal(self) -> Proximal:
        return "recompute" if self.correct == "all" and self.clip else "behaviour"

    def rejected(self, log_w: Tensor, mask: Tensor) -> Tensor:
        """Return 1 for the decisions that are left out, given each decision's own log-ratio."""
        raise NotImplementedError

    def weight(self, log_w: Tensor, mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the weight u and its diagnostics."""
        if self.weight_level is None:
            return log_w.new_ones(log_w.shape), {}
        return level_log_ratio(log_w, mask, self.weight_level).exp(), {}

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        if self.correct == "all":
            log_w, objective, clipped = weighted_surrogate(d, self.clip)
        else:
            log_w, objective, clipped = engine_surrogate(d, self.clip)
        masked, out = self.rejected(log_w, d.mask), vetoed(log_w, d.mask, self.veto)
        if self.kpop:
            masked = masked.maximum((binary_kl(log_w, d.behaviour_logp) > self.kpop).to(masked.dtype))
        kept = (1.0 - masked) * (1.0 - out)
        weight, diagnostics = self.weight(log_w, d.mask)
        if self.normalise:
            weight = batch_normalised(weight, d.mask, self.weight_level or "token")
        loss = -kept * weight * objective / kept_share(kept, d.mask, self.denominator)
        diagnostics |= {"masked": masked, "vetoed": out, "clipped": clipped.maximum(1.0 - kept)}
        return PolicyLoss(loss, diagnostics)


@dataclass(frozen=True)
class Window(Rejecting):
    """Masked policy gradient whose rule is a window: a ratio outside [low, high] is rejected."""

    low: float = 0.5
    high: float = 5.0

    mask_level: ClassVar[Level] = "token"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("low", 0 <= self.low <= 1, "between 0 (no bound) and 1")
        self.require("high", self.high == 0 or self.high >= 1, "0 (no bound) or at least 1")

    def rejected(self, log_w: Tensor, mask: Tensor) -> Tensor:
        return outside(level_log_ratio(log_w, mask, self.mask_level), self.low, self.high)


@ALGORITHMS.register("icepop")
@dataclass(frozen=True)
class IcePop(Window):
    """IcePop, masked importance sampling per token: a token outside a window around 1 is left out, not truncated.

    Maximises  w·1[low ≤ w ≤ high] A log π,  w = π/μ of each token.

    The window is 0.5 to 5 in the paper, OpenRLHF and verl, 0.5 to 2 in SkyRL and miles. In the paper the ratio is
    between trainer and sampler at the same weights (`clip = 0.2` gives its PPO objective); on stale data the same rule
    is a trust region. Options are explained in this file.
    """

    paper = "Ling Team 2025, arXiv:2510.18855"

    weight_level: ClassVar[Level | None] = "token"


@ALGORITHMS.register("mis_seq")
@dataclass(frozen=True)
class MISSequence(Window):
    """Masked importance sampling per completion: a completion is left out if its ratio is outside a window.

    Maximises  w·1[low ≤ w ≤ high] A log π,  w = Π_t π_t/μ_t.

    The spread of log w grows with the square root of the length, so a fixed window acts as a length filter: it keeps
    short completions. The window is verl's. Options are explained in this file.
    """

    low: float = 0.5
    high: float = 2.0

    mask_level: ClassVar[Level] = "sequence"
    weight_level: ClassVar[Level | None] = "sequence"


@ALGORITHMS.register("mis_geo")
@dataclass(frozen=True)
class MISGeometric(Window):
    """Geometric rejection: a completion is left out if the geometric mean of its ratios is outside a window.

    Maximises  1[low ≤ (Π_t w_t)^(1/T) ≤ high] u A log π. The rule does not filter by length. Kept completions have
    weight u = 1 (`none`: verl's `geo_rs`), their own token ratios (OpenRLHF's sequence mask) or the completion's
    (verl's `geo_rs_seq_tis`), cut to `cap`.

    The window is 0.99 to 1.01 in SkyRL, 0.999 to 1.001 in verl, 0.9999 to 1.0001 in slime. At high lag, and on control,
    where a row is one decision, such windows reject nearly everything: watch `masked`. Options are explained in this
    file.
    """

    low: float = 0.99
    high: float = 1.01
    level: Literal["none", "token", "sequence"] = "none"  # level of the weight of kept decisions
    cap: float = 2.0  # largest weight; 0 is no cap

    mask_level: ClassVar[Level] = "geometric"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("cap", self.cap >= 0, "0 (no cap) or above")

    def weight(self, log_w: Tensor, mask: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        if self.level == "none":
            return log_w.new_ones(log_w.shape), {}
        weight, cut = truncated(level_log_ratio(log_w, mask, self.level).exp(), self.cap)
        return weight, {"truncated": cut}


@ALGORITHMS.register("k3_rejection")
@dataclass(frozen=True)
class K3Rejection(Rejecting):
    """k3 rejection: a completion is left out if its mean KL estimate w − 1 − log w exceeds a bound.

    Maximises  1[mean_t (w_t − 1 − log w_t) ≤ delta] w A log π,  w_t = π_t/μ_t. Unlike in a window on the geometric
    mean, tokens with ratios above and below 1 do not cancel. The rule is that of verl's `k3_rs` presets, which apply it
    to PPO's objective; here kept tokens are weighted by their own ratio. With `largest`, a single token that moved too
    far also rejects its completion: the trust region mask (TRM, arXiv:2512.23075). Options are explained in this file.
    """

    delta: float = 0.01  # largest mean k3 of a completion, in nats
    largest: float = later(0.0, before=0.0)  # largest k2 = ½ log² w of any token, in nats; 0 is no bound

    weight_level: ClassVar[Level | None] = "token"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("delta", self.delta > 0, "above 0")
        self.require("largest", self.largest >= 0, "0 (no bound) or above")

    def rejected(self, log_w: Tensor, mask: Tensor) -> Tensor:
        if self.largest:
            one_token = (0.5 * log_w.square() * mask).amax(1, keepdim=True) > self.largest
            return (one_token | (row_mean(log_w.exp() - 1.0 - log_w, mask) > self.delta)).to(log_w.dtype)
        return (row_mean(log_w.exp() - 1.0 - log_w, mask) > self.delta).to(log_w.dtype)
