"""The loop: store the newest version, collect with past ones, train, take in the statistics. One record per phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ..algorithm import check, make_algorithm
from ..errors import Diverged
from ..simulator.buffer import PolicyBuffer
from ..simulator.lags import Lags
from ..simulator.methods import describe, warnings_of
from ..simulator.phase import PhaseRecord, Scores
from ..task import find_env
from .collector import Collector
from .evaluation import evaluate
from .learner import Learner
from .moments import Moments, RewardScale
from .policy import MLPPolicy
from .replay import RolloutStore
from .spec import ControlSpec
from .task import ControlTask


class ControlSimulation:
    """One run, phase by phase. Iterating yields a `PhaseRecord` per phase until the budget is spent.

    Everything that one phase hands to the next is in `state_dict`; random streams are functions of the phase.
    """

    def __init__(self, spec: ControlSpec) -> None:
        _, family = find_env(spec.env)
        task = family()
        assert isinstance(task, ControlTask)
        self.spec, self.task = spec, task
        self.env = self.task.make(spec.env, spec.num_envs, spec.threads)
        obs_dim = int(np.prod(self.env.single_observation_space.shape or ()))
        act_dim = int(np.prod(self.env.single_action_space.shape or ()))
        self.policy = MLPPolicy(obs_dim, act_dim, spec.hidden, spec.seed, spec.device)
        algorithm = make_algorithm(spec)
        check(algorithm, spec, self.task.provides)
        self.learner = Learner(spec, self.policy, algorithm)
        self.lags = Lags(spec)
        self.buffer = PolicyBuffer(spec.capacity)
        self.rollouts = RolloutStore(spec.capacity)
        self.collector = Collector(spec, self.env, self.policy, self.lags)
        self.moments = Moments.initial(obs_dim)
        self.reward_scale = RewardScale(spec.num_envs, spec.discount)
        self.phase = 0
        self.evaluation_steps = 0
        self.method, self.warnings = describe(algorithm, spec), warnings_of(algorithm, spec)

    @property
    def gradient_steps(self) -> int:
        return self.learner.gradient_steps

    def __iter__(self) -> Iterator[PhaseRecord]:
        while self.phase < self.spec.phases:
            yield self.advance()

    def advance(self) -> PhaseRecord:
        """Run one phase: the newest policy is stored before versions are assigned, so lag 0 is always possible."""
        spec, phase = self.spec, self.phase
        clock = time.perf_counter()
        self.buffer.push(self.policy.snapshot(phase, self.learner.gradient_steps))
        rollout, episodes = self.collector.collect(self.buffer, phase)
        if not torch.isfinite(rollout.behaviour_logp).all():
            raise Diverged(f"a behaviour log-probability is not finite in phase {phase}")
        fresh_obs = rollout.obs.flatten(0, 1)
        self.reward_scale.update(rollout.reward.cpu(), (rollout.terminated | rollout.truncated).cpu())
        if spec.mechanism == "replay":
            self.rollouts.push(phase, rollout)
            rollout = self.rollouts.draw(self.lags.draw(phase, spec.num_envs).starts)
        reward = self.reward_scale(rollout.reward) if spec.scale_rewards else rollout.reward.float()
        collected = time.perf_counter()

        metrics = self.learner.train(rollout, reward, phase)
        metrics["statistics_drift"] = self._take_in(fresh_obs)
        self.phase += 1
        trained = time.perf_counter()

        scores = self._evaluate() if phase in spec.evaluation_phases() else None
        metrics |= self.lags.ledger(phase) | {
            "phase": phase,
            "steps": self.phase * spec.steps_per_phase,
            "rollout_return": float(np.mean(episodes.returns)) if episodes.returns else None,
            "rollout_length": float(np.mean(episodes.lengths)) if episodes.lengths else None,
            "rollout_episodes": len(episodes.returns),
            "unseen_rows": self.rollouts.unseen_rows,
            "eval_sampled": scores.mean("sampled") if scores else None,
            "eval_deterministic": scores.mean("deterministic") if scores else None,
        }
        evaluated = time.perf_counter()
        seconds = {
            "collect": collected - clock,
            "learn": trained - collected,
            "evaluate": evaluated - trained,
        }
        return PhaseRecord(metrics, seconds, scores)

    def _take_in(self, obs: torch.Tensor) -> float:
        """Update the observation statistics between phases; returns how far the scaled observations moved (mean
        absolute change of the standardised mean). `frozen` statistics are those of the first phase."""
        if self.spec.observation_statistics == "frozen" and self.phase > 0:
            return 0.0
        before = self.moments
        self.moments = before.updated(obs.cpu())
        self.policy.set_statistics(self.moments)
        mean, inverse_std = self.moments.scaling()
        return float(((mean - before.mean.float()) * inverse_std).abs().mean())

    def _evaluate(self) -> Scores:
        final = self.phase == self.spec.phases
        episodes = self.spec.final_episodes if final else self.spec.evaluation_episodes
        newest = self.policy.snapshot(self.phase, self.learner.gradient_steps)
        scores = evaluate(self.spec, self.task, self.policy, newest, episodes)
        self.evaluation_steps += scores.steps
        return scores

    def close(self) -> None:
        self.env.close()

    def state_dict(self) -> dict[str, Any]:
        """Tensors and primitives only, so that a checkpoint loads without executing anything."""
        return {
            "phase": self.phase,
            "evaluation_steps": self.evaluation_steps,
            "learner": self.learner.state_dict(),
            "buffer": self.buffer.state_dict(),
            "rollouts": self.rollouts.state_dict(),
            "collector": self.collector.state_dict(),
            "moments": self.moments.state_dict(),
            "reward_scale": self.reward_scale.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.phase, self.evaluation_steps = state["phase"], state["evaluation_steps"]
        for name in ("learner", "buffer", "rollouts", "collector", "reward_scale"):
            getattr(self, name).load_state_dict(state[name])
        self.moments = Moments(**state["moments"])
        if self.moments.count > 0:
            self.policy.set_statistics(self.moments)
