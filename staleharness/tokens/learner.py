"""Learning from one generation round: N minibatches of whole completions, the policy alone (no critic)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..algorithm import Algorithm
from ..base.streams import stream
from ..batch import Completions
from ..objectives import aggregation_weights
from ..training.base_learner import Learner, MinibatchLoss
from ..training.lag_stats import LearnerRows, backward_lag_metrics
from ..training.method_descriptions import extra_passes
from .minibatch_gradient import Minibatch, Timer, gradient, gradient_by_rows, pieces
from .policy_interface import Forward, TokenPolicy, score_completions
from .token_metrics import round_metrics
from .token_run_spec import TokenSpec


class TokenLearner(Learner[Completions, Minibatch]):
    """Minibatches of whole groups; the loss is taken on the log-probabilities of all of a minibatch's tokens, and its
    gradient with respect to these then goes through the model."""

    spec: TokenSpec

    def __init__(self, spec: TokenSpec, policy: TokenPolicy, algorithm: Algorithm) -> None:
        parameters = list(policy.parameters.values())
        super().__init__(spec, algorithm, parameters, parameters)
        self.policy = policy
        # the policy that the run began with, where the method pulls towards it; a resumed run begins with it again
        self.reference = policy.snapshot(0, 0) if "reference" in algorithm.needs else None

    def begin(self, data: Completions, phase: int) -> dict[str, Any]:
        self.data, self.phase = data, phase
        self.timer = Timer(self.policy.device, {"proximal": 0.0, "loss": 0.0, "train": 0.0})
        cut = self.spec.mask_truncated
        self.loss_mask = data.mask * (1.0 - data.truncated.float()[:, None]) if cut else data.mask
        if data.kept is not None:
            self.loss_mask = self.loss_mask * data.kept
        self.rows = LearnerRows(data.version, data.gradient_step, data.mask, self.loss_mask)
        begin = time.perf_counter()
        scores_start = extra_passes(self.algorithm, self.spec).per_phase > 0
        self.start = self._score(data) if scores_start else None  # under π_T, the learner at the start of the phase
        self.aligned_logp = self.start  # under the learner when targets were last computed
        self.timer("proximal", begin)
        return round_metrics(data, self.spec.completions) | backward_lag_metrics(self.rows, phase, self.gradient_steps)

    def minibatches(self, epoch: int) -> Iterator[Minibatch]:
        """Groups in the order they were generated, shuffled from the second epoch on."""
        spec, data = self.spec, self.data
        if epoch > 0 and self.algorithm.realign_every == "epoch" and self.aligned_logp is not None:
            begin = time.perf_counter()
            self.aligned_logp = self._score(data)
            self.timer("proximal", begin)
        groups = len(data.token) // spec.completions
        order = np.arange(groups)
        if epoch > 0:
            order = stream(spec.seed, "minibatch", self.phase, epoch).permutation(groups)
        for members in np.array_split(order, spec.minibatches):
            if epoch == 0 and len(members) == groups:  # all of it, in order: nothing to copy
                yield self.minibatch(data, self.loss_mask, self.start, self.aligned_logp)
            else:
                rows = (members[:, None] * spec.completions + np.arange(spec.completions)).ravel()
                index = torch.from_numpy(rows).to(self.policy.device)
                anchors = (None if x is None else x[index] for x in (self.start, self.aligned_logp))
                yield self.minibatch(data.rows(index), self.loss_mask[index], *anchors)

    def trained_by(self, minibatches: Sequence[Minibatch]) -> Tensor:
        trained = self.loss_mask.clone()  # the first epoch goes through the rows in their order
        trained[sum(len(m.mask) for m in minibatches) :] = 0.0
        return trained

    def gradient(self, minibatch: Minibatch) -> MinibatchLoss:
        self.optimizer.zero_grad()
        compute = gradient_by_rows if self.algorithm.optimal_baseline else gradient
        result = compute(self.spec, self.policy, self.algorithm, minibatch, self.timer)
        if not self.spec.mask_truncated:
            return result
        # with every completion cut the gradient is zero, and momentum and weight decay alone move the policy
        return result._replace(log=result.log | {"untaught_steps": (minibatch.mask.sum() == 0).float()})

    def end(self) -> dict[str, Any]:
        del self.data, self.loss_mask, self.start, self.aligned_logp  # not two rounds' data at once
        return {}

    def optimise(self, rate: float) -> Tensor:
        begin = time.perf_counter()
        norm = super().optimise(rate)
        self.timer("train", begin)
        return norm

    def seconds(self) -> dict[str, float]:
        return dict(self.timer.seconds)

    def minibatch(
        self, data: Completions, mask: Tensor, start: Tensor | None = None, aligned_logp: Tensor | None = None
    ) -> Minibatch:
        """`mask` [B, T] is 1 where a token is trained on; `start` and `aligned_logp` [B, T] are log-probabilities under
        the learner at the start of the phase and when targets were last computed, where scored."""
        begin = time.perf_counter()
        proximal_logp = data.behaviour_logp  # under the anchor that the method asks for
        if self.algorithm.proximal == "ewma":
            proximal_logp = self._shadow_logp(data)
        elif self.algorithm.proximal == "recompute":
            assert start is not None
            proximal_logp = start
        begin = self.timer("proximal", begin)
        reference_logp = None if self.reference is None else self._reference_logp(data)
        self.timer("loss", begin)
        return Minibatch(
            data=data,
            mask=mask,
            weights=aggregation_weights(mask, self.spec.aggregation, self.spec.completion_tokens),
            proximal_logp=proximal_logp,
            aligned_logp=aligned_logp,
            reference_logp=reference_logp,
            lag=(self.phase - data.version).float(),
            gradient_lag=(self.gradient_steps - data.gradient_step).float(),
            state=self.state,
            progress=self.progress,
        )

    def _reference_logp(self, data: Completions) -> Tensor:
        """Log-probabilities [B, T] under the policy that the run began with."""
        assert self.reference is not None
        with self.policy.acting([self.reference], np.zeros(len(data.token), dtype=np.int64)) as forward:
            return self._score(data, forward)

    def _shadow_logp(self, data: Completions) -> Tensor:
        """Log-probabilities [B, T] under the moving average of the parameters."""
        learner_weights = [p.data for p in self.parameters]
        try:
            for p, mean in zip(self.parameters, self.shadow, strict=True):
                p.data = mean
            return self._score(data)
        finally:
            for p, weights in zip(self.parameters, learner_weights, strict=True):
                p.data = weights

    def _score(self, data: Completions, forward: Forward | None = None) -> Tensor:
        """Log-probabilities [B, T] without gradient, of the learner as it stands unless another pass is given."""
        with torch.no_grad():
            parts = [
                score_completions(self.policy, p, forward, "none").logp for p in pieces(data, self.policy.micro_batch)
            ]
        return torch.cat(parts)
