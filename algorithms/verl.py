from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from staleharness.algorithm import ALGORITHMS, Algorithm, Proximal, option
from staleharness.batch import Decisions, PolicyLoss
from staleharness.objectives import clipped_surrogate, dual_clip, importance_ratio, log_ratio
from staleharness.weights import level_log_ratio, outside, row_mean, truncated

Preset = Literal[
    "decoupled_token_is",
    "decoupled_seq_is",
    "decoupled_token_icepop",
    "decoupled_seq_is_rs",
    "decoupled_geo_rs",
    "decoupled_geo_rs_seq_tis",
    "decoupled_geo_rs_token_tis",
    "decoupled_k3_rs",
    "decoupled_k3_rs_seq_tis",
    "decoupled_k3_rs_token_tis",
    "bypass_ppo_clip",
    "bypass_ppo_clip_geo_rs",
    "bypass_ppo_clip_k3_rs",
    "bypass_pg_is",
    "bypass_pg_token_icepop",
    "bypass_pg_geo_rs",
    "bypass_pg_geo_rs_seq_tis",
    "bypass_pg_geo_rs_token_tis",
    "disabled",
]


@ALGORITHMS.register("verl")
@dataclass(frozen=True)
class Verl(Algorithm):
    """verl's rollout corrections by preset name: a rejection rule and a weight, with PPO or REINFORCE.

    Maximises  m u · PPO(π/π_prox) with m, u of π_prox/μ (`decoupled_…`), m · PPO(π/μ) with m of π/μ (`bypass_ppo_…`) or
    m u A log π with both of π/μ (`bypass_pg_…`). PPO has verl's dual clip. Weight u: the token's or the completion's
    ratio cut to 2, or IcePop's, 0 outside 0.5 … 5. Rule m: the completion's ratio in 0.5 … 2 (`seq_is_rs`), its
    geometric mean in 0.999 … 1.001 (`geo_rs`), or its mean k3 at most 0.01 (`k3_rs`). `disabled` is PPO around π_prox.

    Rejected tokens stay in the mean's denominator, as in verl's default trainer (`batch_num_tokens`); its legacy
    trainer (`use_v1: false`) leaves them out in decoupled presets. The window of `geo_rs` is on the inverse ratio (verl
    compares −log w), which only matters for an asymmetric window. Thresholds are those of the presets; for others see
    `tis`, `icepop`, `mis_seq`, `mis_geo` and `k3_rejection`. Source: verl/trainer/config/algorithm.py:63,
    rollout_corr_helper.py and core_algos.py at 1dda039. Checked against the code.
    """

    paper = "verl, rollout correction; Liu et al. 2025, richardli.xyz/rl-collapse"
    core: ClassVar[bool] = False

    preset: Preset = "decoupled_seq_is"
    clip: float = option(0.2, above=0)  # ε of PPO
    clip_high: float = option(0.0, least=0)  # ε above 1; 0 is the same as `clip`
    dual_clip: float = 3.0  # ratio above which A < 0 gets no gradient; 0 is none

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("dual_clip", self.dual_clip == 0 or self.dual_clip > 1, "0 (none) or above 1")

    @property
    def proximal(self) -> Proximal:
        return "behaviour" if self.preset.startswith("bypass") else "recompute"

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        preset, decoupled = self.preset, self.proximal == "recompute"
        log_w = log_ratio(d.proximal_logp if decoupled else d.target_logp.detach(), d.behaviour_logp)
        objective, weight = d.advantage * d.target_logp, log_w.new_ones(log_w.shape)
        silent, masked, zero, cut = (log_w.new_zeros(log_w.shape) for _ in range(4))
        if not preset.startswith("bypass_pg"):
            ratio = importance_ratio(d.target_logp, d.proximal_logp if decoupled else d.behaviour_logp)
            objective, silent = clipped_surrogate(ratio, d.advantage, self.clip, self.clip_high or None)
            if self.dual_clip:
                objective, silent = dual_clip(objective, silent, ratio, d.advantage, self.dual_clip)
        if "k3_rs" in preset:
            masked = (row_mean(log_w.exp() - 1.0 - log_w, d.mask) > 0.01).to(log_w.dtype)
        elif "geo_rs" in preset:
            masked = outside(-level_log_ratio(log_w, d.mask, "geometric"), 0.999, 1.001)
        elif preset == "decoupled_seq_is_rs":
            masked = outside(-level_log_ratio(log_w, d.mask, "sequence"), 0.5, 2.0)
        if "icepop" in preset:
            zero, weight = outside(log_w, 0.5, 5.0), log_w.exp()
        elif "token" in preset:
            weight, cut = truncated(log_w.exp(), 2.0)
        elif "seq_" in preset or preset == "bypass_pg_is":
            weight, cut = truncated(level_log_ratio(log_w, d.mask, "sequence").exp(), 2.0)
        total = -(1.0 - masked) * (1.0 - zero) * weight * objective
        masked = masked.maximum(zero)
        return PolicyLoss(total, {"masked": masked, "clipped": silent.maximum(masked), "truncated": cut})
