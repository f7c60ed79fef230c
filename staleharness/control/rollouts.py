"""Actors with environments of their own: driven by a schedule, or each in a process."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..asynchronous.process_rollouts import ActorSettings, ProcessRollouts
from ..base.streams import seed_global_generators
from ..batch import Rollout
from ..schedule import NEVER, Ints, Schedule
from ..simulator.policy_buffer import PolicyBuffer
from ..simulator.row_ledger import Count, Flow, flow_of
from ..task import find_env
from .collector import Collector, Episodes, NextVersions
from .moments import discounted_returns
from .policy import MLPPolicy, policy_for
from .rollout_store import concatenate
from .spec import ControlSpec
from .task import ControlTask


class Group(NamedTuple):
    """What an actor makes at a time: a row in each of its environments."""

    rollout: Rollout  # [E, T]
    returns: Tensor  # [T, E] discounted, see `discounted_returns`
    episodes: Episodes


class Consumed(NamedTuple):
    """What a phase trains on."""

    rollout: Rollout  # [B, T]
    returns: Tensor  # [T, B]
    episodes: Episodes
    flow: Flow
    kept: Tensor | None = None  # [B, T] bool, False: masked out of the loss; None: all are kept


class Actor:
    """`envs_per_actor` environments: those that would be its share of one vector of all actors' environments.

    policy: the learner's, where it is at hand; what acts is the stored versions.
    """

    def __init__(self, spec: ControlSpec, task: ControlTask, policy: MLPPolicy | None, number: int) -> None:
        each = spec.envs_per_actor
        self.seed, self.number, self.discount = spec.seed, number, spec.discount
        seed_global_generators(spec.seed, "construct actor", number)
        env = task.vector(spec.env, each, spec.threads)
        self.collector = Collector(spec, env, policy or policy_for(spec, env), first=number * each)
        self.carry = torch.zeros(each, dtype=torch.float64)

    def make(self, buffer: PolicyBuffer, nth: int, versions: NextVersions) -> Group:
        """The group that it makes as its `nth`; to be called with 0, 1, 2 ... The global generators are a function of
        actor and `nth`: a replay in one process has those of processes."""
        seed_global_generators(self.seed, "act", self.number, nth)
        rollout, episodes = self.collector.make(buffer, nth, versions)
        done = (rollout.terminated | rollout.truncated).cpu()
        returns, self.carry = discounted_returns(rollout.reward.cpu(), done, self.carry, self.discount)
        return Group(rollout, returns, episodes)

    def close(self) -> None:
        self.collector.env.close()

    def state_dict(self) -> dict[str, Any]:
        return {"collector": self.collector.state_dict(), "carry": self.carry}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.collector.load_state_dict(state["collector"])
        self.carry = state["carry"]


class ScheduledRollouts:
    """All actors of a schedule. A group is made in the first phase in which this is possible, and held until it is
    trained on.

    Which groups are made is a function of the phase; the groups held and the actors are carried from phase to phase.
    """

    def __init__(self, spec: ControlSpec, task: ControlTask, policy: MLPPolicy, schedule: Schedule) -> None:
        self.spec, self.task, self.policy, self.schedule = spec, task, policy, schedule
        self.actors: dict[int, Actor] = {}
        self.held: dict[int, Group] = {}

    def collect(self, buffer: PolicyBuffer, phase: int) -> Consumed:
        """What this phase trains on, in the order of places."""
        schedule, made, dropped = self.schedule, Count(), Count()
        for rows in schedule.made_in(phase):
            group = self._make(buffer, rows)
            made += Count(len(rows))
            if schedule.phase[rows[0]] != NEVER:
                self.held[int(schedule.group[rows[0]])] = group
            else:
                dropped += Count(len(rows))
        rows = schedule.trained_in(phase)
        groups = [self.held.pop(g) for g in schedule.group[rows[:: self.spec.envs_per_actor]].tolist()]
        _, kept = schedule.along(rows, self.spec.num_steps)
        steps, queued = self.spec.num_steps, Count(len(self.held) * self.spec.envs_per_actor)
        flow = flow_of(schedule, phase, Count(len(rows)).rows(steps)) or Flow(
            made.rows(steps), dropped=dropped.rows(steps), queued=queued.rows(steps)
        )
        return consumed(groups, flow, None if kept.all() else torch.from_numpy(kept).to(self.policy.device))

    def _make(self, buffer: PolicyBuffer, rows: Ints) -> Group:
        """The group of these rows, by their one actor."""
        versions, _ = self.schedule.along(rows, self.spec.num_steps)
        changes = np.flatnonzero((versions[:, 1:] != versions[:, :-1]).any(0)) + 1
        starts = {0, *changes.tolist()}
        actor = self._actor(int(self.schedule.actor[rows[0]]))
        nth = int(self.schedule.nth[rows[0]])
        return actor.make(buffer, nth, lambda t, done: versions[:, t] if t in starts else None)

    def _actor(self, number: int) -> Actor:
        if number not in self.actors:
            self.actors[number] = Actor(self.spec, self.task, self.policy, number)
        return self.actors[number]

    def close(self) -> None:
        for actor in self.actors.values():
            actor.close()

    def state_dict(self) -> dict[str, Any]:
        return {
            "actors": {number: actor.state_dict() for number, actor in self.actors.items()},
            "held": {number: as_plain(group) for number, group in self.held.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for number, kept in state["actors"].items():
            self._actor(number).load_state_dict(kept)
        groups = {number: as_group(kept) for number, kept in state["held"].items()}
        device = self.policy.device
        self.held = {n: group._replace(rollout=group.rollout.to(device)) for n, group in groups.items()}


def consumed(groups: Sequence[Group], flow: Flow, kept: Tensor | None = None) -> Consumed:
    """Groups one under the other, written down as one vector of environments would have been."""
    rollout = concatenate([group.rollout for group in groups])
    order = torch.from_numpy(np.lexsort((rollout.final_row.cpu(), rollout.final_step.cpu())))
    columns = {f.name: getattr(rollout, f.name) for f in fields(rollout)}
    finals = {name: column[order] for name, column in columns.items() if name.startswith("final_")}
    episodes = Episodes([], [])
    for group in groups:
        episodes.returns += group.episodes.returns
        episodes.lengths += group.episodes.lengths
    returns = torch.cat([group.returns for group in groups], 1)
    return Consumed(Rollout(**columns | finals), returns, episodes, flow, kept)


def as_plain(group: Group) -> dict[str, Any]:
    """As it is kept, and sent: tensors and primitives."""
    rollout = {f.name: getattr(group.rollout, f.name) for f in fields(group.rollout)}
    return {"rollout": rollout, "returns": group.returns, "episodes": asdict(group.episodes)}


def as_group(plain: dict[str, Any]) -> Group:
    """What `as_plain` was given."""
    return Group(Rollout(**plain["rollout"]), plain["returns"], Episodes(**plain["episodes"]))


if TYPE_CHECKING:
    from ..asynchronous.actor import WeightFeed


class ControlActor:
    """An actor that acts with whatever version is the newest."""

    def __init__(self, spec: ControlSpec, number: int) -> None:
        task: Any = find_env(spec.env)[1]()
        self.actor = Actor(spec, task, None, number)
        self.size = spec.envs_per_actor
        self.lengths = [spec.num_steps] * self.size

    def make(self, group: int, nth: int, feed: WeightFeed) -> tuple[bytes, list[int]]:
        def versions(t: int, done: NDArray[np.bool_]) -> NDArray[np.int64] | None:
            version = feed.step(t)
            return None if version is None else np.full(self.size, version)

        made = self.actor.make(feed.buffer, nth, versions)
        stream = io.BytesIO()
        torch.save(as_plain(made), stream)
        return stream.getvalue(), self.lengths


@dataclass(frozen=True)
class Opening:
    """Makes an actor in its own process."""

    spec: ControlSpec

    def __call__(self, number: int) -> ControlActor:
        return ControlActor(self.spec, number)


class ControlProcessRollouts(ProcessRollouts):
    """Processes as the source of a run's rows."""

    def __init__(self, spec: ControlSpec, pace: ActorSettings, preload: tuple[str, ...]) -> None:
        super().__init__(Opening(spec), spec, pace, preload)

    def collect(self, buffer: PolicyBuffer, phase: int) -> Consumed:
        contents, flow = self.take(buffer, phase)
        groups = [torch.load(io.BytesIO(content), weights_only=True) for content in contents]
        return consumed([as_group(plain) for plain in groups], flow)
