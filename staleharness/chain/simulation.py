"""The loop on chains: store the newest version, act with past ones, train. One record per phase."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ..algorithm import check, make_algorithm
from ..base.streams import stream
from ..batch import Completions
from ..errors import Diverged
from ..simulator.buffer import PolicyBuffer
from ..simulator.lags import Lags
from ..simulator.methods import describe, warnings_of
from ..simulator.phase import PhaseRecord, Scores
from ..task import find_env
from ..tokens.learner import TokenLearner
from .policy import BitPolicy, log_probability
from .spec import ChainSpec
from .task import ChainTask


class ChainSimulation:
    """One run, phase by phase, with the learner of tokens: a bit is a token, and a vocabulary has two.

    The policy is evaluated without sampling: its success probability is known exactly.
    """

    def __init__(self, spec: ChainSpec) -> None:
        _, family = find_env(spec.env)
        task = family()
        assert isinstance(task, ChainTask)
        self.spec, self.task = spec, task
        p = task.start(spec)
        self.policy = BitPolicy(spec.horizon, math.log(p / (1.0 - p)), spec.device)
        algorithm = make_algorithm(spec)
        check(algorithm, spec, task.provides)
        self.learner = TokenLearner(spec, self.policy, algorithm)
        self.lags = Lags(spec)
        self.buffer = PolicyBuffer(spec.capacity)
        self.phase = 0
        self.evaluation_steps = 0  # an exact probability takes no decisions
        self.method, self.warnings = describe(algorithm, spec), warnings_of(algorithm, spec)

    @property
    def gradient_steps(self) -> int:
        return self.learner.gradient_steps

    def __iter__(self) -> Iterator[PhaseRecord]:
        while self.phase < self.spec.phases:
            yield self.advance()

    def advance(self) -> PhaseRecord:
        """Act one phase and train on it."""
        phase = self.phase
        clock = time.perf_counter()
        self.buffer.push(self.policy.snapshot(phase, self.learner.gradient_steps))
        data = self._collect(phase)
        if not bool(torch.isfinite(data.behaviour_logp).all()):
            raise Diverged(f"a behaviour log-probability is not finite in phase {phase}")
        collected = time.perf_counter()
        metrics, learning = self.learner.train(data, phase)
        self.phase += 1
        trained = time.perf_counter()
        scores = self._evaluate() if phase in self.spec.evaluation_phases() else None
        metrics |= self.lags.ledger(phase) | {
            "phase": phase,
            "steps": self.phase * self.spec.steps_per_phase,
            "eval_sampled": scores.mean("sampled") if scores else None,
            "eval_deterministic": scores.mean("deterministic") if scores else None,
        }
        seconds = {
            "collect": collected - clock,
            "learn": trained - collected,
            "evaluate": time.perf_counter() - trained,
            **learning,
        }
        return PhaseRecord(metrics, seconds, scores)

    def _collect(self, phase: int) -> Completions:
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
        return Completions(
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

    def _along(self, of_row: Any) -> torch.Tensor:
        """[rows] -> [rows, H]: an episode keeps its version."""
        column = torch.from_numpy(of_row).to(self.policy.device)[:, None]
        return column.expand(-1, self.spec.horizon).contiguous()

    def _evaluate(self) -> Scores:
        """`sampled`: the exact success probability. `deterministic`: whether the likelier bits succeed."""
        p = self.policy.logits.detach().double().sigmoid().cpu().numpy()
        greedy = self.task.outcome(self.spec, (p >= 0.5)[None])
        lengths = {"sampled": [self.spec.horizon], "deterministic": [self.spec.horizon]}
        returns = {
            "sampled": [self.task.success_probability(self.spec, p)],
            "deterministic": [float(greedy[0])],
        }
        return Scores(returns, lengths, 0)

    def close(self) -> None:
        """Nothing is held outside memory."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "learner": self.learner.state_dict(),
            "buffer": self.buffer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.phase = state["phase"]
        for name in ("learner", "buffer"):
            getattr(self, name).load_state_dict(state[name])
