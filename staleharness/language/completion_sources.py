"""Sources of completions: groups that follow the lag model's rows, and actors that are processes of their own."""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from ..asynchronous.actor_rollout_source import ActorSettings, ProcessRollouts
from ..base.streams import seed_global_generators
from ..batch import Completions
from ..errors import UserError
from ..lag import held
from ..pipeline_lag_model import PipelineLag
from ..rollout_schedule import NEVER, Ints, PhaseRows, Schedule
from ..task import find_env
from ..tokens.minibatch_gradient import parts
from ..training.lag_stats import add_histograms
from ..training.policy_buffer import PolicyBuffer, Version
from ..training.sample_ledger import Count, Flow, count_dropped_groups, flow_of
from ..training.version_assignment import Lags
from .decoder_interface import Request
from .length_paced_groups import PacedGroups
from .sampler import Sampler, concatenate
from .setup import prepare
from .spec import LanguageSpec
from .task import LanguageTask

if TYPE_CHECKING:
    from ..asynchronous.actor_process import WeightFeed

MAX_DRAWS = 20  # generation rounds in search of groups that teach something (dynamic sampling)
NOT_COUNTED = "ledger=trained: tokens of the {:,} completions that are dropped or left in the queue are not counted"


@dataclass
class GenerationRound:
    """Completions that a phase trains on."""

    completions: Completions
    dropped_groups: int  # rejected by dynamic sampling, or never to be trained on
    flow: Flow
    candidates: Completions | None = None  # with those that dynamic sampling rejected; None: without it


class ScheduledCompletions:
    """Groups as the lag model plans them, drawn in each phase or scheduled for the whole run.

    Groups of a phase are sampled when it trains on them: a prompt has no past, and the versions are still in the
    buffer. The number of a group is that of its problem.

    Completions of groups that a schedule drops, or leaves in the queue at its end, are sampled as soon as their newest
    version exists, and only their lengths are stored; with ledger=every_phase, so are those of groups that wait to be
    trained on. Where a row's time is given by its length (pace=length), `paced` samples a group when it begins.

    cursor: problems taken so far, where versions are drawn.
    lengths: [n] tokens of each row that was sampled only to be counted, where a schedule plans the run.
    """

    def __init__(self, sampler: Sampler, lags: Lags) -> None:
        self.sampler, self.spec, self.lags = sampler, sampler.spec, lags
        self.cursor = 0
        self.lengths = np.zeros(0 if lags.schedule is None else len(lags.schedule), np.int64)
        self.paced = PacedGroups(sampler)
        if lags.schedule is not None and lags.schedule.apart:
            sampler.use_copies()

    @property
    def warnings(self) -> list[str]:
        """Warning of the run where its ledger leaves tokens out."""
        schedule = self.lags.schedule
        if schedule is None or schedule.apart or schedule.finished is None or self.spec.ledger != "trained":
            return []
        left_out = int(((schedule.finished != NEVER) & (schedule.phase == NEVER)).sum())
        return [NOT_COUNTED.format(left_out)] if left_out else []

    def plan(self, buffer: PolicyBuffer, phase: int) -> None:
        """Make the schedule up to the batch of `phase`, where it depends on the lengths of the run's own rows."""
        if self.lags.model.online:
            self.lags.schedule = self.paced.schedule(cast(PipelineLag, self.lags.model), buffer, phase)

    def collect(self, buffer: PolicyBuffer, phase: int) -> GenerationRound:
        """Return the N × `prompts` groups that `phase` trains on."""
        spec = self.spec
        self.plan(buffer, phase)
        target, group_size = spec.minibatches * spec.prompts, spec.completions
        batches: list[Completions] = []
        candidates: list[Completions] = []
        draws, without_signal = 0, 0
        generated, dropped, lags = Count(), Count(), list[int]()
        while (missing := target - sum(len(batch.group.unique()) for batch in batches)) > 0:
            if draws >= MAX_DRAWS * target:
                raise UserError(
                    f"dynamic sampling drew {draws} groups and found {target - missing} of {target} whose rewards "
                    "differ; the model may be too weak or too strong for these problems"
                )
            plan = self.lags.rows(phase, missing, group_size, spec.completion_tokens, first=draws)
            batch = self._complete(plan, buffer)
            draws += missing
            generated += count(batch)
            candidates.append(batch)
            if spec.dynamic_sampling:
                with_signal = batch.rewards_differ(group_size).repeat_interleave(group_size)
                without_signal += missing - int(with_signal.sum()) // group_size
                left_out = batch.rows((~with_signal).nonzero()[:, 0])
                dropped += count(left_out)
                lags = add_histograms(lags, torch.bincount((phase - left_out.version)[left_out.mask > 0]).tolist())
                batch = batch.rows(with_signal.nonzero()[:, 0])
            batches.append(batch)
        self.cursor += draws if self.lags.drawn else 0
        completions = concatenate(batches, self.sampler.decoder.policy.pad)
        lengths = self._sampled_lengths(plan.schedule, buffer, phase)
        flow = flow_of(plan.schedule, phase, count(completions), lengths)
        flow = flow or Flow(generated, dropped=dropped, dropped_lags=lags)
        all_candidates = concatenate(candidates, self.sampler.decoder.policy.pad) if spec.dynamic_sampling else None
        dropped_here = without_signal + count_dropped_groups(plan.schedule, phase)
        return GenerationRound(completions, dropped_here, flow, all_candidates)

    def _complete(self, plan: PhaseRows, buffer: PolicyBuffer) -> Completions:
        """Return the completions of the rows to train on, sampled in one batch, or group by group where a recorded run
        did so."""
        schedule, group_size, batches = plan.schedule, self.spec.completions, []
        size = group_size if schedule.apart else len(plan.trained)
        for rows in parts(plan.trained, size):
            if schedule.apart:
                first = int(rows[0])
                seed_global_generators(self.spec.seed, "act", int(schedule.actor[first]), int(schedule.nth[first]))
            versions, loss_mask = schedule.along(rows, self.spec.completion_tokens)
            request, problems = self._request(plan._replace(trained=rows), versions)
            first_rows = rows[::group_size]  # of each group
            decoded = self.paced.answer(schedule.group[first_rows].tolist(), request)
            decoded = decoded or self.sampler.decode(request, buffer)
            batch = self.sampler.grade(request, decoded, buffer, problems, schedule.place[first_rows])
            if not schedule.kept.all():
                batch = replace(batch, kept=torch.from_numpy(loss_mask[:, : batch.mask.shape[1]]).to(batch.mask))
            batches.append(batch)
        return concatenate(batches, self.sampler.decoder.policy.pad)

    def _request(self, plan: PhaseRows, versions: Ints) -> tuple[Request, list[int]]:
        """Return the request for the rows to train on, by `versions` [R, length], and their problems."""
        schedule, length = plan.schedule, self.spec.completion_tokens
        first = plan.trained[:: self.spec.completions]
        problems = [self.sampler.problem(self.cursor + number) for number in schedule.group[first].tolist()]
        keys = list(zip(schedule.nth[first].tolist(), schedule.actor[first].tolist(), strict=True))
        if schedule.apart:  # a row that has ended does not show later versions; the others of its group do
            versions[:] = versions.max(0)
        changes = np.flatnonzero((versions[:, 1:] != versions[:, :-1]).any(0)) + 1
        if plan.every and not (changes % plan.every).any():  # else a trace whose rows were scaled to another length
            return self.sampler.request(problems, keys, versions[:, :: plan.every], plan.every), problems
        starts = [0, *changes.tolist()]
        ends = (*starts[1:], length)
        return self.sampler.request(problems, keys, versions[:, starts], length, ends), problems

    def _sampled_lengths(self, schedule: Schedule, buffer: PolicyBuffer, phase: int) -> Ints | None:
        """Return the tokens [n] of each row; None: they are the schedule's own.

        Rows due to be counted in this phase are sampled, as many at once as a phase trains on. One that was stopped
        early has the length it had reached. The buffer is not enlarged for rows that are never trained on: where one
        spans more versions than the buffer holds, its oldest version stands for those before.
        """
        if self.lags.drawn or self.lags.model.online or schedule.apart:
            return None
        rows = np.flatnonzero(self._due == phase)
        size = self.spec.minibatches * self.spec.sequences
        for part in parts(rows, size) if len(rows) else []:
            versions, _ = schedule.along(part, self.spec.completion_tokens)
            versions = versions.clip(held(phase, self.spec.capacity)[0], phase)
            request, _ = self._request(PhaseRows(schedule, [], part), versions)
            tokens: Ints = self.sampler.decode(request, buffer).mask.sum(1).long().cpu().numpy()
            self.lengths[part] = np.minimum(tokens, schedule.lengths[part])
        return self.lengths

    @cached_property
    def _due(self) -> Ints:
        """Phase [n] in which a row is sampled to be counted: the first that has its group's newest version. NEVER for
        rows that are not finished, or whose tokens are known anyway."""
        schedule = self.lags.schedule
        assert schedule is not None
        due = np.full(len(schedule), NEVER)
        if schedule.finished is None or schedule.left is None or self.spec.ledger == "trained":
            return due
        begins = np.flatnonzero(np.diff(schedule.group, prepend=NEVER))
        size = np.diff(begins, append=len(schedule))
        newest = np.repeat(np.maximum.reduceat(schedule.newest, begins), size)
        is_counted = schedule.phase == NEVER
        if self.spec.ledger == "every_phase":
            is_counted = schedule.phase != schedule.finished
        due[is_counted] = np.minimum(newest, schedule.finished)[is_counted]
        return due

    def artifacts(self) -> dict[str, bytes]:
        return {}

    def close(self) -> None: ...

    def state_dict(self) -> dict[str, Any]:
        if self.lags.drawn:
            return {"cursor": self.cursor}
        if self.lags.model.online:
            return self.paced.state_dict()
        return {"lengths": torch.from_numpy(self.lengths)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.cursor = state.get("cursor", 0)
        if "known" in state:
            self.paced.load_state_dict(state)
        if "lengths" in state:
            self.lengths = state["lengths"].numpy().copy()


def count(batch: Completions) -> Count:
    """Return the number of completions that have a token, and of tokens."""
    return Count(int((batch.mask.sum(1) > 0).sum()), int(batch.mask.sum()))


class NewestVersions(PolicyBuffer):
    """Buffer for a decoder in which "version" s is whatever version is the newest when segment s begins."""

    def __init__(self, feed: WeightFeed, length: int) -> None:
        """Segments have `length` tokens."""
        super().__init__(1)
        self.feed, self.length = feed, length
        self.by_segment: list[Version] = []

    def __getitem__(self, segment: int) -> Version:
        while len(self.by_segment) <= segment:
            self.feed.step(len(self.by_segment) * self.length)
            self.by_segment.append(self.feed.buffer.newest)
        return self.by_segment[segment]

    def __contains__(self, segment: int) -> bool:
        return True


class LanguageActor:
    """An actor in a process of its own, which completes prompts with whatever version is the newest."""

    def __init__(self, spec: LanguageSpec, number: int) -> None:
        task = find_env(spec.env)[1]()
        assert isinstance(task, LanguageTask)
        self.spec, self.number = spec, number
        seed_global_generators(spec.seed, "construct actor", number)
        self.sampler = prepare(spec, task).sampler
        self.sampler.use_copies()

    def make(self, group: int, nth: int, feed: WeightFeed) -> tuple[bytes, list[int]]:
        spec, sampler = self.spec, self.sampler
        seed_global_generators(spec.seed, "act", self.number, nth)
        length = spec.completion_tokens
        segment_length = min(feed.timing.fetch or length, length)
        buffer = NewestVersions(feed, segment_length)
        segments = np.tile(np.arange(-(-length // segment_length)), (spec.completions, 1))
        problems = [sampler.problem(group)]
        request = sampler.request(problems, [(nth, self.number)], segments, segment_length)
        decoded = sampler.decode(request, buffer)
        versions = torch.from_numpy(np.array([version.phase for version in buffer.by_segment]))
        if int(decoded.version[decoded.mask > 0].max()) >= len(versions):
            raise UserError(f"the decoder {sampler.decoder.name} returned tokens of a version that it did not read")
        decoded = replace(decoded, version=versions[decoded.version.clamp(max=len(versions) - 1)])  # of padding
        batch = sampler.grade(request, decoded, feed.buffer, problems, np.zeros(1, np.int64))
        content = io.BytesIO()
        torch.save({f.name: getattr(batch, f.name) for f in fields(batch)}, content)
        return content.getvalue(), batch.mask.sum(1).long().tolist()


class LanguageProcessRollouts(ProcessRollouts):
    """Completions of actors that are processes."""

    def __init__(self, spec: LanguageSpec, task: LanguageTask, lags: Lags, pad: int) -> None:
        actor = functools.partial(LanguageActor, spec)
        super().__init__(actor, spec, cast(ActorSettings, lags.model), task.preload)
        self.pad = pad

    def collect(self, buffer: PolicyBuffer, phase: int) -> GenerationRound:
        contents, flow = self.take(buffer, phase)
        batches = []
        for place, content in enumerate(contents):
            batch = Completions(**torch.load(io.BytesIO(content), weights_only=True))
            batches.append(replace(batch, group=batch.group + place))
        return GenerationRound(concatenate(batches, self.pad), flow.dropped.sequences // self.config.rows, flow)
