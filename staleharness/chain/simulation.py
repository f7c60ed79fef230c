"""Chains in the loop: past policies act whole episodes at once, and the policy is scored without sampling."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from ..base.streams import stream
from ..batch import Completions
from ..schedule import Bools, Ints
from ..simulator.lag_stats import external_lag_metrics
from ..simulator.loop import Simulation
from ..simulator.phase_record import PhaseData, Scores
from ..simulator.row_ledger import Count, flow_of
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

    def collect(self, phase: int) -> PhaseData[Completions]:
        """N × B episodes, each acted by the versions that the lag model says. The noise of a decision is one number of
        (seed, phase, episode, position), whatever the batch."""
        spec, device = self.spec, self.policy.device
        rows = spec.minibatches * spec.batch
        acted, noise, kept = self._asked(phase, rows)
        numbers, position = np.unique(acted, return_inverse=True)
        versions = [self.buffer[number] for number in numbers.tolist()]
        with self.policy.acting(versions, np.arange(len(versions))) as forward:
            logits = forward()[torch.from_numpy(position).to(device), torch.arange(spec.horizon, device=device)]
        bits = torch.from_numpy(noise).to(device) < logits.sigmoid()
        outcome = self.task.outcome(spec, bits.cpu().numpy())
        steps = np.array([version.gradient_step for version in versions])[position]
        said = {} if self.lags.schedule is None else self._counted(steps)
        data = Completions(
            prompt=torch.zeros((rows, 1), dtype=torch.int64, device=device),
            prompt_mask=torch.ones((rows, 1), dtype=torch.int64, device=device),
            token=bits.long(),
            mask=torch.ones(logits.shape, device=device),
            behaviour_logp=log_probability(logits, bits),
            version=torch.from_numpy(acted).to(device),
            gradient_step=torch.from_numpy(steps).to(device),
            group=torch.arange(rows, device=device) // spec.batch,
            outcome=torch.from_numpy(outcome).float().to(device),
            truncated=torch.zeros(rows, dtype=torch.bool, device=device),
            unparsed=torch.zeros(rows, dtype=torch.bool, device=device),
            kept=None if kept.all() else torch.from_numpy(kept).float().to(device),
        )
        planned = self.lags.schedule
        made = Count(rows).rows(spec.horizon)
        flow = None if planned is None else flow_of(planned, phase, made)
        return PhaseData(data, data.behaviour_logp, said, {}, flow)

    def _asked(self, phase: int, rows: int) -> tuple[Ints, NDArray[np.float32], Bools]:
        """(version, noise, whether it is kept) of each decision [rows, H]."""
        spec, schedule = self.spec, self.lags.schedule
        shape = rows, spec.horizon
        if schedule is None:  # an episode keeps its version
            starts = self.lags.draw(phase, rows).starts
            return (np.repeat(starts[:, None], spec.horizon, 1), self._noise(phase, 0, shape), np.ones(shape, bool))
        planned = schedule.trained_in(phase)
        versions, kept = schedule.along(planned, spec.horizon)
        noise = np.empty(shape, np.float32)
        block, place = np.divmod(schedule.actor[planned], rows)
        for key in set(zip(schedule.nth[planned].tolist(), block.tolist(), strict=True)):
            mine = (schedule.nth[planned] == key[0]) & (block == key[1])
            noise[mine] = self._noise(*key, shape)[place[mine]]
        return versions, noise, kept

    def _noise(self, nth: int, block: int, shape: tuple[int, int]) -> NDArray[np.float32]:
        """Of the `nth` episode of each of so many actors as a phase has rows; `block` counts these on."""
        which = (nth, block) if block else (nth,)
        return stream(self.spec.seed, "action", *which).random(shape, np.float32)

    def _counted(self, steps: NDArray[np.int64]) -> dict[str, float]:
        updates = self.spec.epochs * self.spec.minibatches
        return external_lag_metrics(torch.from_numpy(steps), self.gradient_steps, updates)

    def evaluate(self) -> Scores:
        """`sampled`: the exact success probability. `deterministic`: whether the likelier bits succeed."""
        p = self.policy.logits.detach().double().sigmoid().cpu().numpy()
        greedy = self.task.outcome(self.spec, (p >= 0.5)[None])
        lengths = {"sampled": [self.spec.horizon], "deterministic": [self.spec.horizon]}
        returns = {"sampled": [self.task.success_probability(self.spec, p)], "deterministic": [float(greedy[0])]}
        return Scores(returns, lengths, 0)


def simulation(spec: ChainSpec, task: ChainTask, folder: Path) -> ChainSimulation:
    return ChainSimulation(spec, task)
