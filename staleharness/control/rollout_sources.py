"""Sources of rows: actors that follow the lag model's rows, and actors that are processes of their own."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..asynchronous.actor_rollout_source import ActorSettings, ProcessRollouts
from ..base.streams import seed_global_generators
from ..batch import Rollout
from ..rollout_schedule import NEVER, Ints, PhaseRows, Schedule
from ..task import find_env
from ..training.policy_buffer import PolicyBuffer
from ..training.sample_ledger import Count, Flow, flow_of
from ..training.version_assignment import Lags, rows_from_draw
from .collector import Collector, Episodes, NextVersions
from .moments import discounted_returns
from .native_actor_critic import policy_for
from .policy import MLPPolicy, mixture_logp
from .spec import ControlSpec
from .task import ControlTask

if TYPE_CHECKING:
    import gymnasium

    from ..asynchronous.actor_process import WeightFeed


class ActorGroup(NamedTuple):
    """Rows that an actor generates at a time: one in each of its environments."""

    rollout: Rollout  # [E, T]
    returns: Tensor  # [T, E] discounted, see `discounted_returns`
    episodes: Episodes


class TrainingRows(NamedTuple):
    """Rows that a phase trains on."""

    rollout: Rollout  # [B, T]
    returns: Tensor  # [T, B]
    episodes: Episodes
    flow: Flow
    loss_mask: Tensor | None = None  # [B, T] bool, False: masked out of the loss; None: all are in it
    first_use: Tensor | None = None  # [B] bool, False: an earlier phase trained on the row, too; None: none did


class EnvironmentActor:
    """`envs_per_actor` environments: the share of actor `number` in one vector of all actors' environments.

    policy: the learner's, where it is at hand; the versions that act come from the buffer.
    env: the vector of all environments, where one actor steps them all; it then uses the run's global generators.
    """

    def __init__(
        self,
        spec: ControlSpec,
        task: ControlTask,
        policy: MLPPolicy | None,
        number: int = 0,
        env: gymnasium.vector.VectorEnv | None = None,
    ) -> None:
        self.seed, self.number, self.discount = spec.seed, number, spec.discount
        self.resets = spec.reset_each_phase
        self.own_generators = env is None
        if env is None:
            seed_global_generators(spec.seed, "construct actor", number)
            env = task.vector(spec.env, spec.envs_per_actor, spec.threads)
        self.collector = Collector(spec, env, policy or policy_for(spec, env), first=number * env.num_envs)
        self.carry = torch.zeros(env.num_envs, dtype=torch.float64)

    def generate(self, buffer: PolicyBuffer, nth: int, next_versions: NextVersions) -> ActorGroup:
        """Return the actor's `nth` group; to be called with 0, 1, 2 ... Its own generators, if any, depend only on
        actor and `nth`, so that a replay in one process draws as separate processes do."""
        if self.own_generators:
            seed_global_generators(self.seed, "act", self.number, nth)
        rollout, episodes = self.collector.generate(buffer, nth, next_versions)
        if self.resets:
            self.carry = torch.zeros_like(self.carry)
        done = (rollout.terminated | rollout.truncated).cpu()
        returns, self.carry = discounted_returns(rollout.reward.cpu(), done, self.carry, self.discount)
        return ActorGroup(rollout, returns, episodes)

    def state_dict(self) -> dict[str, Any]:
        return {"collector": self.collector.state_dict(), "carry": self.carry}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.collector.load_state_dict(state["collector"])
        self.carry = state["carry"]


class ScheduledRollouts:
    """Rows as the lag model plans them, drawn in each phase or scheduled for the whole run.

    A group is generated in the first phase in which all its versions exist, and is in `pending` until the phase that
    trains on it. With drawn versions, all environments are stepped together, as one actor's, and trained on at once.

    env: the vector of all environments, where versions are drawn.
    """

    def __init__(
        self,
        spec: ControlSpec,
        task: ControlTask,
        policy: MLPPolicy,
        lags: Lags,
        env: gymnasium.vector.VectorEnv | None = None,
    ) -> None:
        self.spec, self.task, self.policy, self.lags = spec, task, policy, lags
        self.actors = {} if env is None else {0: EnvironmentActor(spec, task, policy, 0, env)}
        self.group_size = spec.envs_per_actor if env is None else spec.num_envs
        self.pending: dict[int, ActorGroup] = {}

    def collect(self, buffer: PolicyBuffer, phase: int) -> TrainingRows:
        """Return the rows that `phase` trains on, in the order of their places."""
        plan, steps = self._plan(phase), self.spec.num_steps
        schedule, generated, dropped = plan.schedule, Count(), Count()
        for rows in plan.generated:
            group = self._generate(buffer, phase, schedule, rows)
            generated += Count(len(rows))
            if schedule.phase[rows[0]] == NEVER:
                dropped += Count(len(rows))
            else:
                self.pending[int(schedule.group[rows[0]])] = group
        rows = plan.trained
        first = rows[:: self.group_size]
        groups = [self.pending[number] for number in schedule.group[first].tolist()]
        for number in schedule.group[first[schedule.last_phase[first] <= phase]].tolist():
            del self.pending[number]
        _, loss_mask = schedule.along(rows, steps)
        queued = Count(len(self.pending) * self.group_size)
        flow = flow_of(schedule, phase, Count(len(rows)).rows(steps)) or Flow(
            generated.rows(steps), dropped=dropped.rows(steps), queued=queued.rows(steps)
        )
        first_use = torch.from_numpy(schedule.phase[rows] == phase)
        return training_rows(
            groups,
            flow,
            None if loss_mask.all() else torch.from_numpy(loss_mask).to(self.policy.device),
            None if first_use.all() else first_use,
        )

    def _plan(self, phase: int) -> PhaseRows:
        spec = self.spec
        if spec.mechanism == "reexecute" and spec.assignment == "phase":
            return self.lags.rows(phase, spec.num_envs, length=spec.num_steps)
        # the newest version acts, and stored rows return; or each episode gets a version as it begins
        return rows_from_draw(phase, np.full((spec.num_envs, 1), phase), spec.num_steps, spec.num_steps)

    def _generate(self, buffer: PolicyBuffer, phase: int, schedule: Schedule, rows: Ints) -> ActorGroup:
        """Return the group of these rows, by their one actor."""
        number = int(schedule.actor[rows[0]])
        if number not in self.actors:
            self.actors[number] = EnvironmentActor(self.spec, self.task, self.policy, number)
        actor = self.actors[number]
        next_versions = (
            self._versions_by_episode(buffer, phase, actor.collector)
            if self.spec.assignment == "episode"
            else next_versions_from(schedule.along(rows, self.spec.num_steps)[0])
        )
        group = actor.generate(buffer, int(schedule.nth[rows[0]]), next_versions)
        if self.spec.density == "component":
            return group
        mixture = self._mixture_logp(buffer, phase, group.rollout, actor.collector)
        return group._replace(rollout=replace(group.rollout, behaviour_logp=mixture))

    def _versions_by_episode(self, buffer: PolicyBuffer, phase: int, collector: Collector) -> NextVersions:
        """Draw a version when an episode begins, and where the buffer or a sync takes it from a running episode."""

        def next_versions(t: int, done: NDArray[np.bool_]) -> Ints | None:
            fresh: NDArray[np.bool_] = done
            if t == 0:
                available = [v for v in range(self.lags.oldest(phase), phase + 1) if v in buffer]
                fresh = (collector.episode_length == 0) | ~np.isin(collector.env_versions, available)
            elif not done.any():
                return None
            drawn = self.lags.draw(phase, collector.size, *((t,) if t else ()), fresh=fresh).starts
            return np.where(fresh, drawn, collector.env_versions)

        return next_versions

    @torch.no_grad()
    def _mixture_logp(self, buffer: PolicyBuffer, phase: int, rollout: Rollout, collector: Collector) -> Tensor:
        """Return log-probabilities [B, T] under the mixture of the versions that the lag model draws from."""
        shares = self.lags.probabilities(phase)
        numbers = sorted(shares)
        obs, action = (x.transpose(0, 1).flatten(0, 1) for x in (rollout.obs, rollout.action))
        versions = [collector.with_acting_statistics(buffer[v]) for v in numbers]
        logp = mixture_logp(self.policy, versions, [shares[v] for v in numbers], obs, action)
        return logp.view(rollout.version.t().shape).t().contiguous()

    def artifacts(self) -> dict[str, bytes]:
        return {}

    def close(self) -> None:
        for actor in self.actors.values():
            actor.collector.env.close()

    def state_dict(self) -> dict[str, Any]:
        return {
            "actors": {number: actor.state_dict() for number, actor in self.actors.items()},
            "held": {number: group_to_dict(group) for number, group in self.pending.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for number, content in state["actors"].items():
            if number not in self.actors:
                self.actors[number] = EnvironmentActor(self.spec, self.task, self.policy, number)
            self.actors[number].load_state_dict(content)
        device = self.policy.device
        self.pending = {number: group_from_dict(content, device) for number, content in state["held"].items()}


def next_versions_from(versions: Ints) -> NextVersions:
    """Return a function of decision t: the planned `versions` [E, T] at t where any row's changes there, else None."""
    starts = {0, *(np.flatnonzero((versions[:, 1:] != versions[:, :-1]).any(0)) + 1).tolist()}
    return lambda t, done: versions[:, t] if t in starts else None


def training_rows(
    groups: Sequence[ActorGroup], flow: Flow, loss_mask: Tensor | None = None, first_use: Tensor | None = None
) -> TrainingRows:
    """Return groups one under the other, in the form that one vector of environments would have left."""
    if len(groups) == 1:
        return TrainingRows(*groups[0], flow, loss_mask, first_use)
    rollout = concatenate([group.rollout for group in groups])
    order = torch.from_numpy(np.lexsort((rollout.final_row.cpu(), rollout.final_step.cpu())))
    finals = {name: column[order] for name, column in rollout.columns.items() if name.startswith("final_")}
    episodes = Episodes(
        [x for group in groups for x in group.episodes.returns], [n for group in groups for n in group.episodes.lengths]
    )
    returns = torch.cat([group.returns for group in groups], 1)
    return TrainingRows(replace(rollout, **finals), returns, episodes, flow, loss_mask, first_use)


def concatenate(rollouts: list[Rollout]) -> Rollout:
    """Rollouts of equal length, one under the other."""
    offsets = np.cumsum([0] + [r.reward.shape[0] for r in rollouts[:-1]]).tolist()
    columns = {name: torch.cat([getattr(r, name) for r in rollouts]) for name in rollouts[0].columns}
    columns["final_row"] = torch.cat([r.final_row + offset for r, offset in zip(rollouts, offsets, strict=True)])
    return Rollout(**columns)


def group_to_dict(group: ActorGroup) -> dict[str, Any]:
    """Return a group as tensors and primitives, to be stored or sent."""
    return {"rollout": group.rollout.columns, "returns": group.returns, "episodes": group.episodes._asdict()}


def group_from_dict(content: dict[str, Any], device: torch.device) -> ActorGroup:
    """Invert `group_to_dict`; the rollout lies on `device`."""
    return ActorGroup(Rollout(**content["rollout"]).to(device), content["returns"], Episodes(**content["episodes"]))


class NewestVersionActor:
    """An actor in a process of its own, which acts with whatever version is the newest."""

    def __init__(self, spec: ControlSpec, number: int) -> None:
        task: Any = find_env(spec.env)[1]()
        self.actor = EnvironmentActor(spec, task, None, number)
        self.size = spec.envs_per_actor
        self.lengths = [spec.num_steps] * self.size

    def make(self, group: int, nth: int, feed: WeightFeed) -> tuple[bytes, list[int]]:
        def next_versions(t: int, done: NDArray[np.bool_]) -> Ints | None:
            version = feed.step(t)
            return None if version is None else np.full(self.size, version)

        content = io.BytesIO()
        torch.save(group_to_dict(self.actor.generate(feed.buffer, nth, next_versions)), content)
        return content.getvalue(), self.lengths


class ControlProcessRollouts(ProcessRollouts):
    """Rows of actors that are processes."""

    def __init__(self, spec: ControlSpec, task: ControlTask, lags: Lags) -> None:
        actor: Callable[[int], NewestVersionActor] = functools.partial(NewestVersionActor, spec)
        super().__init__(actor, spec, cast(ActorSettings, lags.model), task.preload)

    def collect(self, buffer: PolicyBuffer, phase: int) -> TrainingRows:
        contents, flow = self.take(buffer, phase)
        groups = [group_from_dict(torch.load(io.BytesIO(x), weights_only=True), torch.device("cpu")) for x in contents]
        return training_rows(groups, flow)
