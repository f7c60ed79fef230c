"""The gradient under a baseline that the method chooses from the gradients of single rows, in one backward pass each,
without ever holding such a gradient whole."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..objectives import group_baseline
from ..simulator.answers import loss_of
from ..simulator.learning import Gradient
from .minibatch import Minibatch
from .policy import TokenPolicy
from .spec import TokenSpec
from .statistics import of_step
from .timer import Timer


class RowGradients:
    """Two running sums of the gradients g_i that backward passes bring, and ‖g_i‖² of the latest.

    Each parameter's part is taken as soon as the pass has it, while it is in the cache, and then freed. So beside
    `total`, which plain training has as well, one more gradient is held and not three.
    """

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self.parameters = parameters
        self.total = [torch.zeros_like(p) for p in parameters]  # what becomes the gradient of the step
        self.group = [torch.zeros_like(p) for p in parameters]  # of the group under way
        self.squared_norm = torch.zeros((), device=parameters[0].device)
        self._coefficients = 0.0, 0.0

    @contextlib.contextmanager
    def taking(self) -> Iterator[None]:
        """While it lasts, gradients go into the sums and none stays with a parameter."""
        handles = [
            p.register_post_accumulate_grad_hook(lambda p, i=i: self._take(i, p)) for i, p in enumerate(self.parameters)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def next_row(self, in_total: float, in_group: float) -> None:
        """The coming backward pass is of a row with these coefficients in the two sums."""
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
) -> Gradient:
    """Put dLoss/dθ under the method's own baseline b of each group into the gradients of the policy's parameters.

    With u_i the gradient of row i at advantage 1 and m the run's own baseline, a group contributes
    Σ (R_i − m)/σ u_i − (b − m) Σ u_i/σ, and b is known when its last row has been through (Huang et al. 2026,
    arXiv:2602.17616, section 4.2, where m = 0: with equal rewards the difference of the two sums is then rounding).

    Also Σ ‖u_i (R_i − b)/σ‖² / Σ ‖u_i (R_i − m)/σ‖², the share of the gradient's second moment that is left by
    b in place of m; 1 where no group has anything to say.
    """
    begin = time.perf_counter()
    data, mask, weights = batch.data, batch.mask, batch.weights
    parameters = list(policy.parameters.values())
    mean, sigma = group_baseline(data.outcome, data.group, spec.baseline)
    centred = (data.outcome - mean) / sigma
    sums = RowGradients(parameters)
    logp, entropy, pull = torch.zeros_like(mask), torch.zeros_like(mask), torch.zeros_like(mask)
    baseline, squared = torch.zeros_like(sigma), torch.zeros_like(sigma)
    for group in data.group.unique():
        rows = (data.group == group).nonzero()[:, 0]
        norms = torch.zeros_like(sigma[rows])
        shared = mean[rows[0]]  # rloo has one for each row; under b the sum is the same with any of them
        in_total = (data.outcome[rows] - shared) / sigma[rows]
        for i, row in enumerate(rows):
            one, width = batch.rows(row[None]), int(data.mask[row].sum())
            token, valid = one.data.token[:, :width], one.data.mask[:, :width]
            scored = policy.score(one.data.prompt, one.data.prompt_mask, token, valid)
            assert scored.entropy is not None
            leaf = torch.zeros_like(one.mask)
            leaf[:, :width] = scored.logp.detach()
            logp[row], entropy[row, :width] = leaf[0], scored.entropy[0].detach()
            leaf.requires_grad_()
            (one.weights * loss_of(algorithm, one.decisions(leaf, one.mask)).loss).sum().backward()
            assert leaf.grad is not None
            sums.next_row(float(in_total[i]), float(1.0 / sigma[row]))
            with sums.taking():
                torch.autograd.backward([scored.logp], [leaf.grad[:, :width]])
            pull[row] = leaf.grad[0]
            squared[row] = sums.squared_norm
            norms[i] = sums.squared_norm / weights[row].max().clamp(min=1e-15).square()
        together = batch.rows(rows)
        baseline[rows] = algorithm.row_baseline(together.decisions(logp[rows], together.mask), norms)
        sums.end_group(float(shared - baseline[rows[0]]))
    for p, total in zip(parameters, sums.total, strict=True):
        p.grad = total
    advantage = ((data.outcome - baseline) / sigma)[:, None] * mask
    decisions = batch.decisions(logp, advantage)
    of_mean = (squared * centred.square()).sum()
    of_own = (squared * ((data.outcome - baseline) / sigma).square()).sum()
    ratio = torch.where(of_mean > 0, of_own / of_mean.clamp(min=1e-30), 1.0)
    answer = loss_of(algorithm, decisions)
    timer("train", begin)
    log = of_step(decisions, answer, pull * advantage, entropy, weights, algorithm.proximal)
    return Gradient(decisions, answer, log | {"second_moment_ratio": ratio})
