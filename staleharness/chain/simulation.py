"""Chains in the loop: past policies act whole episodes at once, and the policy is scored without sampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ..base.streams import stream
from ..batch import Completions
from ..simulator.loop import Collected, Simulation
from ..simulator.phase import Scores
from ..tokens.learner import TokenLearner
from .policy import BitPolicy, log_probability
from .spec import ChainSpec
from .task import ChainTask


class ChainSimulation(Simulation[Completions]):
    """A run on chains, with the learner of tokens: a bit is a token, and a vocabulary has two.

    The policy is evaluated without sampling: its success probability is known exactly, and that takes no decisions.
    """

    spec: ChainSpec
    task: ChainTask
    policy: BitPolicy

    def __init__(self, spec: ChainSpec, task: ChainTask) -> None:
        super().__init__(spec, task)
        p = task.start(spec)
        self.policy = BitPolicy(spec.horizon, math.log(p / (1.0 - p)), spec.device)
        self.learner = TokenLearner(spec, self.policy, self.algorithm)

    def collect(self, phase: int) -> Collected[Completions]:
        """N × B episodes, each acted by the version that the lag model assigns to it. The noise of a decision is one
        number of (seed, phase, episode, position), whatever the batch."""
        spec, device = self.spec, self.policy.device
        rows = spec.minibatches * spec.batch
        assigned = self.lags.draw(phase, rows).starts
        numbers, position = np.unique(assigned, return_inverse=True)
        versions = [self.buffer[number] for number in numbers.tolist()]
        with self.policy.acting(versions, position) as forward:
            logits = forward()
        noise = stream(spec.seed, "action", phase).random((rows, spec.horizon), np.float32)
        bits = torch.from_numpy(noise).to(device) < logits.sigmoid()
        outcome = self.task.outcome(spec, bits.cpu().numpy())
        steps = np.array([version.gradient_step for version in versions])[position]
        data = Completions(
            prompt=torch.zeros((rows, 1), dtype=torch.int64, device=device),
            prompt_mask=torch.ones((rows, 1), dtype=torch.int64, device=device),
            token=bits.long(),
            mask=torch.ones(logits.shape, device=device),
            behaviour_logp=log_probability(logits, bits),
            version=self._along(assigned),
            gradient_step=self._along(steps),
            group=torch.arange(rows, device=device) // spec.batch,
            outcome=torch.from_numpy(outcome).float().to(device),
            truncated=torch.zeros(rows, dtype=torch.bool, device=device),
            unparsed=torch.zeros(rows, dtype=torch.bool, device=device),
        )
        return Collected(data, data.behaviour_logp, {}, {})

    def _along(self, of_row: Any) -> torch.Tensor:
        """[rows] -> [rows, H]: an episode keeps its version."""
        column = torch.from_numpy(of_row).to(self.policy.device)[:, None]
        return column.expand(-1, self.spec.horizon).contiguous()

    def evaluate(self) -> Scores:
        """`sampled`: the exact success probability. `deterministic`: whether the likelier bits succeed."""
        p = self.policy.logits.detach().double().sigmoid().cpu().numpy()
        greedy = self.task.outcome(self.spec, (p >= 0.5)[None])
        lengths = {"sampled": [self.spec.horizon], "deterministic": [self.spec.horizon]}
        returns = {
            "sampled": [self.task.success_probability(self.spec, p)],
            "deterministic": [float(greedy[0])],
        }
        return Scores(returns, lengths, 0)
