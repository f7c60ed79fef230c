"""Completions of one gradient step, and the gradient.

The loss is first taken as a function of the minibatch's log-probabilities; its gradient with respect to these
then goes through the model piece by piece. So every mean and statistic that a method takes is over the
whole minibatch, and micro-batching changes nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..algorithm import Algorithm
from ..batch import BEGINNING, Completions, Decisions, Progress, Trajectories
from ..objectives import group_baseline
from ..training.base_learner import MinibatchLoss, normalise
from ..training.hook_checks import loss_of, targets_of
from .policy_interface import Entropy, TokenPolicy, score_completions
from .token_metrics import step_metrics
from .token_run_spec import TokenSpec


@dataclass(frozen=True)
class Minibatch:
    """Whole completions [B, T]; nothing here depends on the gradient step that is about to be taken."""

    data: Completions
    mask: Tensor  # [B, T] 1 where a token is trained on
    weights: Tensor  # [B, T] the loss is Σ weights · L, see `aggregation_weights`
    proximal_logp: Tensor  # [B, T] under the anchor that the method asks for
    aligned_logp: Tensor | None  # [B, T] under the learner when targets were last computed, where scored
    reference_logp: Tensor | None  # [B, T] under the run's first policy, where the method needs it
    lag: Tensor  # [B, T] phases
    gradient_lag: Tensor  # [B, T] gradient steps
    state: Mapping[str, Any]  # the method's own
    progress: Progress = BEGINNING

    def rows(self, index: Tensor) -> Minibatch:
        """The rows at `index` [R]; their weights stay those of the whole minibatch."""
        tensors: dict[str, Any] = {name: x[index] for name, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, data=self.data.rows(index), **tensors)

    def decisions(self, target_logp: Tensor, advantage: Tensor, logit_norm: Tensor | None = None) -> Decisions:
        """Return the decisions of a method's loss: these rows under the learner's `target_logp` [B, T]."""
        return Decisions(
            target_logp=target_logp,
            behaviour_logp=self.data.behaviour_logp,
            proximal_logp=self.proximal_logp,
            advantage=advantage,
            lag=self.lag,
            gradient_lag=self.gradient_lag,
            mask=self.mask,
            state=self.state,
            progress=self.progress,
            group=self.data.group,
            outcome=self.data.outcome,
            logit_norm=logit_norm,
            reference_logp=self.reference_logp,
            version_logp=self.data.version_logp,
        )


def pieces(data: Completions, micro_batch: int) -> list[Completions]:
    """`data` in parts of at most `micro_batch` rows; 0: in one part."""
    rows = parts(np.arange(len(data.token)), micro_batch)
    if len(rows) == 1:
        return [data]
    return [data.rows(torch.from_numpy(part).to(data.token.device)) for part in rows]


def parts(rows: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """`rows` in pieces of at most `size`; 0 is all at once."""
    return [rows] if size == 0 or len(rows) <= size else [rows[i : i + size] for i in range(0, len(rows), size)]


def gradient(
    spec: TokenSpec, policy: TokenPolicy, algorithm: Algorithm, batch: Minibatch, timer: Timer
) -> MinibatchLoss:
    """Add dLoss/dθ to the gradients of the policy's parameters."""
    begin = time.perf_counter()
    parts = pieces(batch.data, policy.micro_batch)
    at_once = len(parts) == 1
    square = "logit_norm" in algorithm.needs
    entropy_mode: Entropy = "gradient" if spec.entropy_coef > 0 else "value"
    with torch.set_grad_enabled(at_once):
        scores = [score_completions(policy, p, None, entropy_mode, square) for p in parts]
    logp = torch.cat([s.logp for s in scores])
    entropy = torch.cat([s.entropy for s in scores if s.entropy is not None])
    norms = torch.cat([s.norm for s in scores if s.norm is not None]) if square else None
    target_logp = logp.detach().requires_grad_()
    begin = timer("train", begin)
    now = target_logp.detach()
    fixed = None if algorithm.realign_every == "step" else batch.aligned_logp
    advantage = group_relative_advantage(spec, algorithm, batch, now if fixed is None else fixed)
    decisions = batch.decisions(target_logp, advantage, norms)
    answer = loss_of(algorithm, decisions)
    loss = (batch.weights * answer.loss).sum()
    if loss.requires_grad:
        loss.backward()
    reaches_policy = target_logp.grad is not None
    logp_gradient = target_logp.grad if target_logp.grad is not None else torch.zeros_like(now)
    begin = timer("loss", begin)
    entropy_gradient = -spec.entropy_coef * batch.weights
    if at_once:
        _backward(logp, entropy, logp_gradient, entropy_gradient)
    else:
        sizes = [len(p.token) for p in parts]
        for p, *gradients in zip(parts, logp_gradient.split(sizes), entropy_gradient.split(sizes), strict=True):
            piece = score_completions(policy, p, None, "gradient" if entropy_mode == "gradient" else "none")
            _backward(piece.logp, piece.entropy, *gradients)
    timer("train", begin)
    log = step_metrics(decisions, answer, logp_gradient, entropy.detach(), batch.weights, algorithm.proximal)
    return MinibatchLoss(decisions, answer, log, reaches_policy)


def _backward(logp: Tensor, entropy: Tensor | None, logp_gradient: Tensor, entropy_gradient: Tensor) -> None:
    """Backpropagate dL/dlogp, and the entropy bonus's gradient where there is one, to the parameters."""
    if entropy is not None and entropy.requires_grad:
        torch.autograd.backward([logp, entropy], [logp_gradient, entropy_gradient])
    else:
        torch.autograd.backward([logp], [logp_gradient])


@dataclass
class Timer:
    """Seconds by activity; waits for the GPU, so that its work counts for the activity that launched it."""

    device: torch.device
    seconds: dict[str, float]

    def __call__(self, name: str, begin: float) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        now = time.perf_counter()
        self.seconds[name] += now - begin
        return now


class RowGradients:
    """Two running sums of the gradients g_i of backward passes, and ‖g_i‖² of the latest.

    Each parameter's part is taken as soon as the pass has it, while it is in the cache, and then freed. So besides
    `total`, which plain training has as well, one more gradient is held, not three.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = parameters
        self.total = [torch.zeros_like(p) for p in parameters]  # the gradient of the step
        self.group = [torch.zeros_like(p) for p in parameters]  # of the group under way
        self.squared_norm = torch.zeros((), device=parameters[0].device)
        self._coefficients = 0.0, 0.0

    @contextlib.contextmanager
    def taking(self) -> Iterator[None]:
        """Context in which gradients go into the sums, and none stays with a parameter."""
        handles = [
            p.register_post_accumulate_grad_hook(lambda p, i=i: self._take(i, p)) for i, p in enumerate(self.parameters)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def next_row(self, in_total: float, in_group: float) -> None:
        """Give the row of the next backward pass these coefficients in the two sums."""
        self._coefficients = in_total, in_group
        self.squared_norm.zero_()

    def _take(self, i: int, p: Tensor) -> None:
        assert p.grad is not None
        in_total, in_group = self._coefficients
        g, p.grad = p.grad, None
        self.squared_norm += torch.linalg.vector_norm(g).square()
        if in_total:  # half of the rewards are 0
            self.total[i].add_(g, alpha=in_total)
        self.group[i].add_(g, alpha=in_group)

    def end_group(self, coefficient: float) -> None:
        """total += coefficient · group, and the next group begins."""
        torch._foreach_add_(self.total, self.group, alpha=coefficient)
        torch._foreach_zero_(self.group)


def gradient_by_rows(
    spec: TokenSpec, policy: TokenPolicy, algorithm: Algorithm, batch: Minibatch, timer: Timer
) -> MinibatchLoss:
    """Put dLoss/dθ under the method's own baseline b of each group into the gradients of the policy's parameters.

    With u_i the gradient of row i at advantage 1 and m the run's own baseline, a group contributes
    Σ (R_i − m)/σ u_i − (b − m) Σ u_i/σ, and b is known once its last row has been processed (Huang et al. 2026,
    arXiv:2602.17616, section 4.2, where m = 0: with equal rewards the difference of the two sums is then rounding).

    Logs `second_moment_ratio`, Σ ‖u_i (R_i − b)/σ‖² / Σ ‖u_i (R_i − m)/σ‖²: the share of the gradient's second moment
    that remains with b in place of m; 1 where no group has a gradient.
    """
    begin = time.perf_counter()
    data, mask, weights = batch.data, batch.mask, batch.weights
    parameters = list(policy.parameters.values())
    mean, sigma = group_baseline(data.outcome, data.group, spec.baseline)
    deviation = (data.outcome - mean) / sigma
    sums = RowGradients(parameters)
    logp, entropy, logp_gradient = torch.zeros_like(mask), torch.zeros_like(mask), torch.zeros_like(mask)
    baseline, squared_norms = torch.zeros_like(sigma), torch.zeros_like(sigma)
    # numbers that the host needs, read once: each read waits for the GPU
    groups, widths = data.group.tolist(), data.mask.sum(1).long().tolist()
    rows_of = {group: [row for row, other in enumerate(groups) if other == group] for group in sorted(set(groups))}
    first = torch.tensor([rows_of[group][0] for group in groups], device=mean.device)
    group_mean = mean[first]  # rloo has one for each row; under b the sum is the same with any of them
    in_total, in_group = ((data.outcome - group_mean) / sigma).tolist(), (1.0 / sigma).tolist()
    for numbers in rows_of.values():
        rows = torch.tensor(numbers, device=mean.device)
        norms = torch.zeros_like(sigma[rows])
        for i, row in enumerate(numbers):
            single, width = batch.rows(rows[i : i + 1]), widths[row]
            row_data = single.data
            token, valid = row_data.token[:, :width], row_data.mask[:, :width]
            experts = None if row_data.experts is None else row_data.experts[:, : row_data.prompt.shape[1] + width]
            scores = score_completions(policy, replace(row_data, token=token, mask=valid, experts=experts))
            assert scores.entropy is not None
            leaf = torch.zeros_like(single.mask)
            leaf[:, :width] = scores.logp.detach()
            logp[row], entropy[row, :width] = leaf[0], scores.entropy[0].detach()
            leaf.requires_grad_()
            (single.weights * loss_of(algorithm, single.decisions(leaf, single.mask)).loss).sum().backward()
            assert leaf.grad is not None
            sums.next_row(in_total[row], in_group[row])
            with sums.taking():
                torch.autograd.backward([scores.logp], [leaf.grad[:, :width]])
            logp_gradient[row] = leaf.grad[0]
            squared_norms[row] = sums.squared_norm
            norms[i] = sums.squared_norm / weights[row].max().clamp(min=1e-15).square()
        together = batch.rows(rows)
        baseline[rows] = algorithm.row_baseline(together.decisions(logp[rows], together.mask), norms)
        sums.end_group(float(group_mean[numbers[0]] - baseline[numbers[0]]))
    for p, total in zip(parameters, sums.total, strict=True):
        p.grad = total
    advantage = ((data.outcome - baseline) / sigma)[:, None] * mask
    decisions = batch.decisions(logp, advantage)
    group_moment = (squared_norms * deviation.square()).sum()
    own_moment = (squared_norms * ((data.outcome - baseline) / sigma).square()).sum()
    ratio = torch.where(group_moment > 0, own_moment / group_moment.clamp(min=1e-30), 1.0)
    answer = loss_of(algorithm, decisions)
    timer("train", begin)
    log = step_metrics(decisions, answer, logp_gradient * advantage, entropy, weights, algorithm.proximal)
    return MinibatchLoss(decisions, answer, log | {"second_moment_ratio": ratio})


def group_relative_advantage(spec: TokenSpec, algorithm: Algorithm, batch: Minibatch, target_logp: Tensor) -> Tensor:
    """Advantages [B, T] by the method's own targets under the learner's `target_logp` [B, T].

    The group's baseline takes the place of the critic's value everywhere, so GAE(1, 1) is (R − baseline)/scale.
    """
    data, valid = batch.data, batch.data.mask
    baseline, scale = group_baseline(data.outcome, data.group, spec.baseline)
    last = valid * (torch.cat([valid[:, 1:], torch.zeros_like(valid[:, :1])], 1) == 0)
    value = (baseline / scale)[:, None] * valid
    next_value = torch.cat([value[:, 1:], torch.zeros_like(value[:, :1])], 1)
    with torch.no_grad():
        targets = targets_of(
            algorithm,
            Trajectories(
                reward=(data.outcome / scale)[:, None] * last,
                discount=spec.discount * valid * (1.0 - last),
                continues=valid * (1.0 - last),
                value=value,
                next_value=next_value,
                behaviour_logp=data.behaviour_logp,
                target_logp=target_logp,
                lag=batch.lag,
                mask=valid,
                gae_lambda=spec.gae_lambda,
            ),
        )
    advantage = targets.advantage * batch.mask
    if spec.normalise_advantage and algorithm.normalise_advantage:
        advantage = normalise(advantage, batch.mask, spec.advantage_correction)
    return advantage
