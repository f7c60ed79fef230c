"""The shared mathematics: ratios, divergences, surrogates, advantages. Pure functions of tensors [B, T].

Nothing here imports torch; only methods of the given tensors are used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from .batch import Decisions, Targets, Trajectories
from .errors import UserError
from .spec import Aggregation, StepSize

if TYPE_CHECKING:
    from torch import Tensor

AdvantageForm = Literal["lambda_mix", "vs"]
KLEstimator = Literal["auto", "analytic", "k2", "k3"]  # auto: analytic where there is a closed form, else k3
Anchor = Literal["behaviour", "proximal"]

LOG_RATIO_LIMIT = 20.0  # e²⁰ ≈ 5·10⁸, whose square fits in float32; a ratio beyond it carries no gradient


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Mean of `x` over the decisions where `mask` is 1 (a scalar)."""
    return (x * mask).sum() / mask.sum().clamp(min=1.0)


def aggregation_weights(mask: Tensor, how: Aggregation, length: int) -> Tensor:
    """W [B, T] such that the minibatch's loss is Σ W·L; the denominators are those of the whole minibatch.

    - `token-mean`: Σ L / Σ tokens (DAPO)
    - `seq-mean-token-mean`: mean over completions of their token means (GRPO, GSPO)
    - `seq-mean-token-sum-norm`: mean over completions of Σ L / `length`, the longest allowed (Dr. GRPO)
    """
    if how == "token-mean":
        return mask / mask.sum().clamp(min=1.0)
    rows = (mask.sum(1) > 0).sum().clamp(min=1)
    if how == "seq-mean-token-mean":
        return mask / (mask.sum(1, keepdim=True).clamp(min=1.0) * rows)
    return mask / (length * rows)


def group_baseline(outcome: Tensor, group: Tensor, how: str) -> tuple[Tensor, Tensor]:
    """(baseline, scale) [B] of a row's reward: the group-relative advantage is (R − baseline)/scale.

    - `grpo`: mean and standard deviation (n − 1) + 1e-6 of the group (Shao et al. 2024, arXiv:2402.03300); where all
      rewards are equal the scale is 1: dividing by 1e-6 would blow up any difference that a discount leaves
    - `dr_grpo`: mean and 1 (Liu et al. 2025, arXiv:2503.20783)
    - `rloo`: mean of the others and 1 (Ahmadian et al. 2024, arXiv:2402.14740)
    - `none`: 0 and 1
    """
    ones = outcome.new_ones(outcome.shape)
    if how == "none":
        return 0.0 * ones, ones
    same_group = (group[:, None] == group[None, :]).to(outcome.dtype)
    count = same_group.sum(1)
    all_equal = (same_group * (outcome[None, :] != outcome[:, None])).sum(1) == 0
    total = same_group @ outcome
    mean = outcome.where(all_equal, total / count)  # exact where rewards are equal, whatever the rounding
    if how == "rloo":
        return outcome.where(all_equal, (total - outcome) / (count - 1.0)), ones
    if how == "dr_grpo":
        return mean, ones
    variance = (same_group * (outcome[None, :] - mean[:, None]).square()).sum(1) / (count - 1.0)
    return mean, (variance.sqrt() + 1e-6).masked_fill(all_equal, 1.0)


# --- ratios and divergences -------------------------------------------------------------------------------


def log_ratio(target_logp: Tensor, anchor_logp: Tensor, limit: float = LOG_RATIO_LIMIT) -> Tensor:
    """log π − log of the anchor, from joint log-probabilities, clamped to ±`limit`."""
    return (target_logp - anchor_logp).clamp(-limit, limit)


def importance_ratio(target_logp: Tensor, behaviour_logp: Tensor, limit: float = LOG_RATIO_LIMIT) -> Tensor:
    """w = π/μ per decision, from joint log-probabilities; the log-ratio is clamped to ±`limit` before exp."""
    return log_ratio(target_logp, behaviour_logp, limit).exp()


def total_variation(ratio: Tensor, mask: Tensor) -> Tensor:
    """D_TV(π, μ) = ½ E_μ|w − 1|, estimated on the sample (Achiam et al. 2017)."""
    return 0.5 * masked_mean((ratio - 1.0).abs(), mask)


def effective_sample_size(ratio: Tensor, mask: Tensor) -> Tensor:
    """(Σw)² / (n Σw²), as a fraction in (0, 1]."""
    weights = ratio * mask
    return weights.sum().square() / (mask.sum() * weights.square().sum()).clamp(min=1e-30)


def sequence_log_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Σ_t log w_t over each row's decisions [B], clamped to ±20: the log-ratio of the whole sequence."""
    return (log_ratio * mask).sum(1).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def sequence_sample_size(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Effective sample size of the weights of whole rows, as a fraction in (0, 1], from log w [B, T] per decision.
    Scale-invariant, so where a log-weight exceeds the limit of `sequence_log_ratio`, all are divided by the largest."""
    total, rows = (log_ratio * mask).sum(1).clamp(-1e30, 1e30), mask.sum(1) > 0
    largest = total.where(rows, -1e30).max()
    total = (total - largest.where((total.abs() > LOG_RATIO_LIMIT).any(), 0.0)).where(rows, 0.0)
    return effective_sample_size(total.exp(), rows.to(total.dtype))


def step_factor(d: Decisions, rule: StepSize) -> float:
    """Factor on the size of the next gradient step, whatever the method.

    - `ess`: √ESS of the untruncated sequence weights (VCPO, arXiv:2602.17616, eq. 5, on-policy ESS ratio 1); a sequence
      on control is a row of a phase for methods that train on whole rows, and a single decision for the others
    - `inverse_lag`: 1/max(1, mean lag in phases): keeps lag × rate constant; helps only where staleness, not
      steps × rate, limits the learning rate (arXiv:2607.01083)
    """
    if rule == "ess":
        return float(sequence_sample_size(d.target_logp.detach() - d.behaviour_logp, d.mask).sqrt())
    if rule == "inverse_lag":
        return 1.0 / max(1.0, float(masked_mean(d.lag, d.mask)))
    return 1.0


def group_total(x: Tensor, group: Tensor) -> Tensor:
    """Σ of `x` [B] or [B, T] over all rows of the same `group` [B], for each row."""
    return (group[:, None] == group[None, :]).to(x.dtype) @ x


def kl_k1(target_logp: Tensor, anchor_logp: Tensor) -> Tensor:
    """−log w: unbiased for KL[anchor ‖ π] under the anchor's samples, of either sign (Schulman 2020)."""
    return -log_ratio(target_logp, anchor_logp)


def kl_k2(target_logp: Tensor, anchor_logp: Tensor) -> Tensor:
    """½ (log w)²: never negative, biased, and what PPO-EWMA's code penalises (Schulman 2020)."""
    return 0.5 * log_ratio(target_logp, anchor_logp).square()


def kl_k3(target_logp: Tensor, anchor_logp: Tensor) -> Tensor:
    """w − 1 − log w: unbiased for KL[anchor ‖ π] under its samples, never negative (Schulman 2020)."""
    log_w = log_ratio(target_logp, anchor_logp)
    return log_w.exp() - 1.0 - log_w


def kl_divergence(d: Decisions, anchor: Anchor, estimator: KLEstimator) -> Tensor:
    """KL[anchor ‖ π_θ] per decision, with gradient.

    Samples are always the behaviour policy's, so k2 and k3 against the proximal policy leave that mismatch
    uncorrected, as PPO-EWMA's code does. Raises `UserError` for `analytic` where the policy has no closed
    form.
    """
    if estimator in ("auto", "analytic") and d.analytic_kl is not None:
        return d.analytic_kl(anchor)
    if estimator == "analytic":
        raise UserError("the analytic KL needs a policy with a closed form; use auto, k2 or k3 for this one")
    anchor_logp = d.behaviour_logp if anchor == "behaviour" else d.proximal_logp
    return (kl_k2 if estimator == "k2" else kl_k3)(d.target_logp, anchor_logp)


# --- surrogates, to be maximised ---------------------------------------------------------------------------


def clipped_surrogate(
    ratio: Tensor, advantage: Tensor, epsilon: float, epsilon_high: float | None = None
) -> tuple[Tensor, Tensor]:
    """min(rA, clip(r, 1 − ε, 1 + ε_high)A) (Schulman et al. 2017, eq. 7); and 1 where the clip removes the gradient.

    ε_high is ε unless given (clip-higher, Yu et al. 2025, arXiv:2503.14476, eq. 10).
    """
    low, high = 1.0 - epsilon, 1.0 + (epsilon if epsilon_high is None else epsilon_high)
    clipped_ratio = ratio.detach().clamp(low, high)
    beyond = (ratio.detach() - clipped_ratio) * advantage  # above 0 where the clip binds, 0 inside the clip
    # Inside the clip both terms are equal, and autograd would split the gradient between them. Without the second one
    # the backward pass has half the operations and gives the same bits.
    bound = (clipped_ratio * advantage).masked_fill(beyond == 0, math.inf)
    return (ratio * advantage).minimum(bound), (beyond > 0).to(ratio.dtype)


def dual_clip(
    objective: Tensor, outside: Tensor, ratio: Tensor, advantage: Tensor, cap: float
) -> tuple[Tensor, Tensor]:
    """max(objective, cap·A) where A < 0 (dual clip, Ye et al. 2020, arXiv:1912.09729), and 1 where either clip acts.

    `objective` and `outside` are those of `clipped_surrogate`, whose minimum bounds no ratio above 1 where A < 0.
    """
    floor = (advantage < 0) & (ratio > cap)
    return (cap * advantage).where(floor, objective), outside.maximum(floor.to(outside.dtype))


def spo_surrogate(ratio: Tensor, advantage: Tensor, epsilon: float) -> Tensor:
    """rA − |A|(r − 1)²/2ε (Xie et al. 2025, Algorithm 1): largest at r = 1 + ε sign(A)."""
    return ratio * advantage - advantage.abs() * (ratio - 1.0).square() / (2.0 * epsilon)


def outward(ratio: Tensor, advantage: Tensor) -> Tensor:
    """1 where ascending wA moves w further from 1, that is where A·sign(w − 1) > 0."""
    return (advantage * (ratio - 1.0).sign() > 0).to(ratio.dtype)


# --- advantages and value targets --------------------------------------------------------------------------


def gae(t: Trajectories) -> Targets:
    """Generalised advantage estimation (Schulman et al. 2016, eq. 16), with bootstrapping at truncation."""
    delta = t.reward + t.discount * t.next_value - t.value
    advantage = sum_backwards(delta, t.discount * t.gae_lambda * _successor(t)) * t.mask
    return Targets(advantage, advantage + t.value)


def vtrace(t: Trajectories, rho_bar: float = 1.0, c_bar: float = 1.0, form: AdvantageForm = "lambda_mix") -> Targets:
    """V-trace (Espeholt et al. 2018, eq. 1, remarks 1 and 2): value targets v and the advantages they imply.

    With w = π/μ, ρ = min(ρ̄, w) and c = λ min(c̄, w) (λ scales only the trace, never ρ):

        v_t − V(s_t) = ρ_t (r_t + γ V(s_{t+1}) − V(s_t)) + γ c_t (v_{t+1} − V(s_{t+1}))

    - `vs`: A = r + γ v_{t+1} − V(s_t), the papers' q − V; on-policy this is GAE(λ) only at λ = 1
    - `lambda_mix`: A = r + γ [λ v_{t+1} + (1 − λ) V(s_{t+1})] − V(s_t), rlax's form; on-policy this is GAE(λ)

    The advantage has no factor ρ_t, because the loss has the importance weight. Nothing crosses an episode's end: where
    the next column is not a successor (terminated, truncated, padding, the row's end) v_{t+1} is V(s_{t+1}).
    """
    ratio = importance_ratio(t.target_logp, t.behaviour_logp)
    delta = t.reward + t.discount * t.next_value - t.value
    successor = t.discount * _successor(t)
    trace = successor * t.gae_lambda * ratio.clamp(max=c_bar)
    excess = sum_backwards(ratio.clamp(max=rho_bar) * delta, trace) * t.mask  # v − V
    next_excess = excess.new_zeros(excess.shape)
    next_excess[:, :-1] = excess[:, 1:]
    mix = t.gae_lambda if form == "lambda_mix" else 1.0
    advantage = (delta + successor * mix * next_excess) * t.mask
    return Targets(advantage, excess + t.value)


def sum_backwards(x: Tensor, decay: Tensor) -> Tensor:
    """y_t = x_t + decay_t · y_{t+1} along each row, with nothing beyond the last column. All [B, T].

    Runs over the rows of a time-major copy; on a CPU through NumPy, whose small operations cost less. Multiplication
    and addition are rounded separately, so that the bits are those of the textbook loop.
    """
    out, factors = x.detach().t().contiguous().clone(), decay.detach().t().contiguous()
    if out.device.type == "cpu":
        accumulate(list(out.numpy()), list(factors.numpy()))
    else:
        accumulate(out.unbind(0), factors.unbind(0))
    return out.t().contiguous()


def accumulate(y: Sequence[Any], decay: Sequence[Any]) -> None:
    """y_t += decay_t · y_{t+1}, in place and backwards, over rows that are tensors or NumPy arrays."""
    for s in range(len(y) - 2, -1, -1):
        row = y[s]
        row += decay[s] * y[s + 1]


def _successor(t: Trajectories) -> Tensor:
    """1 where the next column is this decision's successor: not at the end of an episode or row, nor before padding."""
    link = t.continues.clone()
    link[:, :-1] *= t.mask[:, 1:]
    link[:, -1] = 0.0
    return link
