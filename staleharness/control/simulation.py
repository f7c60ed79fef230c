"""Control in the loop: past policies act in a vector of environments, or their stored rollouts come back."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from ..asynchronous.process_rollouts import ActorSettings
from ..batch import Rollout
from ..errors import Diverged
from ..lag import read_lag
from ..simulator.lag_stats import external_lag_metrics
from ..simulator.loop import Simulation
from ..simulator.phase_record import PhaseData, Scores
from ..simulator.policy_buffer import PolicyBuffer
from ..simulator.row_ledger import Count, Flow
from .action_distributions import far_bounds
from .collector import Collector, Episodes
from .evaluation import evaluate
from .learner import ControlData, ControlLearner
from .moments import Moments, RewardScale
from .policy import MLPPolicy, policy_for
from .rollout_store import RolloutStore
from .rollouts import Consumed, ControlProcessRollouts, ScheduledRollouts
from .spec import ControlSpec
from .task import ControlTask

if TYPE_CHECKING:
    import gymnasium


class Source(Protocol):
    """Where rows come from."""

    def collect(self, buffer: PolicyBuffer, phase: int) -> Consumed: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class LearnsControl(Simulation[ControlData]):
    """Learner, statistics and evaluation of a run on gymnasium environments, wherever its data come from.

    env: one vector of them, from which the spaces are read.
    """

    spec: ControlSpec
    task: ControlTask
    policy: MLPPolicy

    def __init__(self, spec: ControlSpec, task: ControlTask, env: gymnasium.vector.VectorEnv) -> None:
        super().__init__(spec, task)
        self.policy = policy_for(spec, env)
        if (far := far_bounds(env)) is not None:
            self.warnings.append(f"{spec.env}: {far}")
        self.learner = ControlLearner(spec, self.policy, self.algorithm)
        self.moments = Moments.initial(self.policy.obs_dim)
        self.reward_scale = RewardScale(spec.num_envs, spec.discount)

    def consumes(
        self,
        rollout: Rollout,
        fresh: Rollout,
        episodes: Episodes,
        unseen: int,
        flow: Flow | None = None,
        kept: Tensor | None = None,
    ) -> PhaseData[ControlData]:
        """What the learner takes: `rollout`, and of what was acted in this phase, `fresh`, the statistics."""
        spec = self.spec
        self._check_answers(fresh)
        reward = self.reward_scale(rollout.reward) if spec.scale_rewards else rollout.reward.float()
        said = {
            "rollout_return": float(np.mean(episodes.returns)) if episodes.returns else None,
            "rollout_length": float(np.mean(episodes.lengths)) if episodes.lengths else None,
            "rollout_episodes": len(episodes.returns),
            "unseen_rows": unseen,
        }
        data = ControlData(rollout, reward, fresh.obs.flatten(0, 1), kept)
        return PhaseData(data, fresh.behaviour_logp, said, {}, flow)

    def _check_answers(self, acted: Rollout) -> None:
        """Raise `Diverged` where what the environments answered is not finite, which no method can learn from; but not
        where an action was not before, for which they cannot be blamed. What is seen where the world has ended counts
        for nothing, and may be anything."""
        sound = acted.behaviour_logp.isfinite().cumprod(1).bool()  # [B, T], every decision up to this one
        before = torch.cat([torch.ones_like(sound[:, :1]), sound[:, :-1]], 1)
        ends = acted.final_row, acted.final_step
        for what, numbers, to_blame in (
            ("an observation", acted.obs.isfinite().all(-1), before),
            ("an observation", acted.final_obs.isfinite().all(-1), sound[ends] & ~acted.terminated[ends]),
            ("a reward", acted.reward.isfinite(), sound),
        ):
            if bool((~numbers & to_blame).any()):
                raise Diverged(f"{self.spec.env} gave {what} that is not finite in phase {self.phase}")

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

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "moments": self.moments.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.buffer.to(self.policy.device)
        self.moments = Moments(**state["moments"])
        if self.moments.count > 0:
            self.policy.set_statistics(self.moments)


FIRST_AGAIN = (
    "mechanism=replay trains on the first batch again in every phase until LAG={} has its lag, which is over-fitting "
    "and not delay; LAG=delay:<l> without replay is a queue that trains on nothing before it is full"
)


class ControlSimulation(LearnsControl):
    """A run on a vector of gymnasium environments, with versions that are drawn in each phase."""

    stateful: ClassVar[tuple[str, ...]] = ("rollouts", "collector", "reward_scale")

    def __init__(self, spec: ControlSpec, task: ControlTask) -> None:
        self.env = task.vector(spec.env, spec.num_envs, spec.threads)
        super().__init__(spec, task, self.env)
        self.rollouts = RolloutStore(spec.capacity, self.policy.device)
        self.collector = Collector(spec, self.env, self.policy, self.lags)
        if spec.mechanism == "replay" and self._fills_with_the_first():
            self.warnings.append(FIRST_AGAIN.format(spec.lag))

    def _fills_with_the_first(self) -> bool:
        """Whether the lag model is a queue of whole phases, whose first one returns until it is full."""
        first, later = self.lags.probabilities(1), self.lags.probabilities(self.spec.capacity)
        return first == {0: 1.0} and len(later) == 1

    def collect(self, phase: int) -> PhaseData[ControlData]:
        spec = self.spec
        rollout, episodes = self.collector.collect(self.buffer, phase)
        fresh, flow = rollout, None
        self.reward_scale.update(rollout.reward.cpu(), (rollout.terminated | rollout.truncated).cpu())
        if spec.mechanism == "replay":
            rollout, flow = self._replayed(phase, rollout)
        return self.consumes(rollout, fresh, episodes, self.rollouts.unseen_rows, flow)

    def _replayed(self, phase: int, fresh: Rollout) -> tuple[Rollout, Flow]:
        """Store what was acted, and bring back what the lag model asks for."""
        spec, store = self.spec, self.rollouts
        left = store.unseen_rows
        store.push(phase, fresh)
        drawn = store.draw(self.lags.draw(phase, spec.num_envs).starts)
        made, lost, waiting, again = (
            Count(rows).rows(spec.num_steps)
            for rows in (spec.num_envs, store.unseen_rows - left, store.waiting_rows, store.reused_rows)
        )
        return drawn, Flow(made, dropped=lost, queued=waiting, reused=again)

    def close(self) -> None:
        self.env.close()


class ControlOfActors(LearnsControl):
    """A run whose rows come from actors with environments of their own.

    actors: what makes the rows; it answers `collect(buffer, phase)` and is carried from phase to phase.
    """

    stateful: ClassVar[tuple[str, ...]] = ("actors", "reward_scale")

    def __init__(self, spec: ControlSpec, task: ControlTask) -> None:
        with contextlib.closing(task.vector(spec.env, 1, 1)) as env:
            super().__init__(spec, task, env)
        self.actors = self.engaged()

    def engaged(self) -> Source:
        """The actors of the schedule, or processes."""
        if self.lags.schedule is None:
            return ControlProcessRollouts(self.spec, cast(ActorSettings, self.lags.model), self.task.preload)
        return ScheduledRollouts(self.spec, self.task, self.policy, self.lags.schedule)

    def artifacts(self) -> dict[str, bytes]:
        return self.actors.artifacts() if isinstance(self.actors, ControlProcessRollouts) else {}

    def collect(self, phase: int) -> PhaseData[ControlData]:
        rollout, returns, episodes, flow, kept = self.actors.collect(self.buffer, phase)
        self.reward_scale.take_in(returns)
        found = self.consumes(rollout, rollout, episodes, 0, flow, kept)
        updates = self.spec.epochs_in(phase) * self.spec.minibatches
        elsewhere = external_lag_metrics(rollout.gradient_step, self.gradient_steps, updates)
        return found._replace(metrics=found.metrics | elsewhere)

    def close(self) -> None:
        self.actors.close()


def simulation(spec: ControlSpec, task: ControlTask, folder: Path) -> LearnsControl:
    """The run of a spec: with versions drawn in each phase, or with rows of actors."""
    return (ControlSimulation if read_lag(spec.lag).drawn else ControlOfActors)(spec, task)
