"""Control in the loop: past policies act in a vector of environments, or what they did comes back."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from ..simulator.loop import Collected, Simulation
from ..simulator.phase import Scores
from .collector import Collector
from .distributions import distribution_of
from .evaluation import evaluate
from .learner import ControlData, ControlLearner
from .moments import Moments, RewardScale
from .policy import MLPPolicy
from .replay import RolloutStore
from .spec import ControlSpec
from .task import ControlTask


class ControlSimulation(Simulation[ControlData]):
    """A run on a vector of gymnasium environments."""

    spec: ControlSpec
    task: ControlTask
    policy: MLPPolicy
    stateful: ClassVar[tuple[str, ...]] = ("rollouts", "collector", "reward_scale")

    def __init__(self, spec: ControlSpec, task: ControlTask) -> None:
        super().__init__(spec, task)
        self.env = task.make(spec.env, spec.num_envs, spec.threads)
        obs_dim = int(np.prod(self.env.single_observation_space.shape or ()))
        self.policy = MLPPolicy(obs_dim, distribution_of(self.env), spec.hidden, spec.seed, spec.device)
        self.learner = ControlLearner(spec, self.policy, self.algorithm)
        self.rollouts = RolloutStore(spec.capacity)
        self.collector = Collector(spec, self.env, self.policy, self.lags)
        self.moments = Moments.initial(obs_dim)
        self.reward_scale = RewardScale(spec.num_envs, spec.discount)

    def collect(self, phase: int) -> Collected[ControlData]:
        spec = self.spec
        rollout, episodes = self.collector.collect(self.buffer, phase)
        fresh = rollout
        self.reward_scale.update(rollout.reward.cpu(), (rollout.terminated | rollout.truncated).cpu())
        if spec.mechanism == "replay":
            self.rollouts.push(phase, rollout)
            rollout = self.rollouts.draw(self.lags.draw(phase, spec.num_envs).starts)
        reward = self.reward_scale(rollout.reward) if spec.scale_rewards else rollout.reward.float()
        said = {
            "rollout_return": float(np.mean(episodes.returns)) if episodes.returns else None,
            "rollout_length": float(np.mean(episodes.lengths)) if episodes.lengths else None,
            "rollout_episodes": len(episodes.returns),
            "unseen_rows": self.rollouts.unseen_rows,
        }
        data = ControlData(rollout, reward, fresh.obs.flatten(0, 1))
        return Collected(data, fresh.behaviour_logp, said, {})

    def between_phases(self, data: ControlData) -> dict[str, Any]:
        return {"statistics_drift": self._take_in(data.fresh_obs)}

    def _take_in(self, obs: Tensor) -> float:
        """Update the observation statistics; returns how far the scaled observations moved (mean absolute change of
        the standardised mean). `frozen` statistics are those of the first phase."""
        if self.spec.observation_statistics == "frozen" and self.phase > 0:
            return 0.0
        before = self.moments
        self.moments = before.updated(obs.cpu())
        self.policy.set_statistics(self.moments)
        mean, inverse_std = self.moments.scaling()
        return float(((mean - before.mean.float()) * inverse_std).abs().mean())

    def evaluate(self) -> Scores:
        final = self.phase == self.spec.phases
        episodes = self.spec.final_episodes if final else self.spec.evaluation_episodes
        newest = self.policy.snapshot(self.phase, self.gradient_steps)
        return evaluate(self.spec, self.task, self.policy, newest, episodes)

    def close(self) -> None:
        self.env.close()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "moments": self.moments.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.moments = Moments(**state["moments"])
        if self.moments.count > 0:
            self.policy.set_statistics(self.moments)
