"""Rounds as a schedule says: the completions that are trained on, and those that only count."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Completions
from ..lag import held
from ..schedule import NEVER, Ints, Schedule
from ..simulator.policy_buffer import PolicyBuffer
from ..simulator.row_ledger import dropped_groups, flow_of
from .decoder import Request
from .generation import Round, count
from .sampler import Sampler, Seconds, concatenate

UNCOUNTED = "ledger=trained: tokens of the {:,} completions that are dropped or left in the queue are not counted"


class Planned:
    """Groups as a schedule says. Those of a phase are made when it trains on them: a prompt has no past, and the
    versions are still held.

    The number of a group is that of its problem. Of groups that a simulation drops, or leaves in the queue at its end,
    the completions are sampled as soon as their newest version is there, and nothing is kept of them but how long they
    are; with ledger=every_phase, of those that have to wait for their training, too.
    """

    def __init__(self, sampler: Sampler, schedule: Schedule) -> None:
        self.sampler, self.spec, self.schedule = sampler, sampler.spec, schedule
        self.lengths = np.zeros(len(schedule), np.int64)  # tokens of each row that was made only to be counted

    @property
    def remarks(self) -> list[str]:
        """Warnings of the run: what its ledger leaves out."""
        schedule = self.schedule
        if schedule.apart or schedule.finished is None or self.spec.ledger != "trained":
            return []
        left_out = int(((schedule.finished != NEVER) & (schedule.phase == NEVER)).sum())
        return [UNCOUNTED.format(left_out)] if left_out else []

    def round(self, buffer: PolicyBuffer, phase: int) -> Round:
        schedule, each, seconds = self.schedule, self.spec.completions, Seconds()
        rows = schedule.trained_in(phase)
        alone = each if schedule.apart else len(rows)
        parts = [
            self._made(rows[i : i + alone], np.arange(i, i + alone, each) // each, buffer, seconds)
            for i in range(0, len(rows), alone)
        ]
        made = concatenate(parts, self.sampler.decoder.policy.pad)
        flow = flow_of(schedule, phase, count(made), self._lengths(buffer, phase, seconds))
        return Round(made, dropped_groups(schedule, phase), flow, seconds)

    def _made(self, rows: Ints, places: Ints, buffer: PolicyBuffer, seconds: Seconds) -> Completions:
        """Some rows, as one batch; `places` of their groups."""
        schedule = self.schedule
        versions, kept = schedule.along(rows, self.spec.completion_tokens)
        request, chosen = self._request(rows, versions)
        made = self.sampler.complete(request, buffer, chosen, places, seconds)
        if schedule.kept.all():
            return made
        masked = torch.from_numpy(kept[:, : made.mask.shape[1]]).to(made.mask)
        return replace(made, kept=masked)

    def _request(self, rows: Ints, versions: Ints) -> tuple[Request, list[int]]:
        """What to ask for some rows, by `versions` [R, length], and their problems."""
        schedule, length = self.schedule, self.spec.completion_tokens
        if schedule.apart:  # a row that has ended says nothing of what came after; the others of its group do
            versions[:] = versions.max(0)
            ends = [*range(schedule.apart, length, schedule.apart), length]
        else:
            ends = [*(np.flatnonzero((versions[:, 1:] != versions[:, :-1]).any(0)) + 1).tolist(), length]
        first = rows[:: self.spec.completions]
        chosen = [self.sampler.problem(number) for number in schedule.group[first].tolist()]
        keys = list(zip(schedule.nth[first].tolist(), schedule.actor[first].tolist(), strict=True))
        starts = [0, *ends[:-1]]
        return self.sampler.request(chosen, keys, versions[:, starts], length, tuple(ends)), chosen

    def _lengths(self, buffer: PolicyBuffer, phase: int, seconds: Seconds) -> Ints | None:
        """Tokens of each row; None: what the schedule says, which a recording knows.

        Rows that are due in this phase to be counted are sampled, as many at once as a phase trains on. One that was
        stopped under way is as long as it had become. What nobody trains on does not make the buffer larger: where it
        spans more versions than that holds, the oldest one held stands for those before.
        """
        if self.schedule.apart:
            return None
        rows, schedule = np.flatnonzero(self._due == phase), self.schedule
        size = self.spec.minibatches * self.spec.sequences
        for part in np.split(rows, range(size, len(rows), size)) if len(rows) else []:
            versions, _ = schedule.along(part, self.spec.completion_tokens)
            versions = versions.clip(held(phase, self.spec.capacity)[0], phase)
            decoded = self.sampler.decode(self._request(part, versions)[0], buffer, seconds)
            sampled: NDArray[np.int64] = decoded.mask.sum(1).long().cpu().numpy()
            self.lengths[part] = np.minimum(sampled, schedule.lengths[part])
        return self.lengths

    @cached_property
    def _due(self) -> Ints:
        """[n], the phase in which a row is made to be counted: the first that has its group's newest version. NEVER for
        those that are not finished, or whose tokens are known anyway."""
        schedule = self.schedule
        due = np.full(len(schedule), NEVER)
        if schedule.finished is None or schedule.left is None or self.spec.ledger == "trained":
            return due
        begins = np.flatnonzero(np.diff(schedule.group, prepend=NEVER))
        size = np.diff(begins, append=len(schedule))
        newest = np.repeat(np.maximum.reduceat(schedule.newest, begins), size)
        wanted = schedule.phase == NEVER
        if self.spec.ledger == "every_phase":
            wanted = schedule.phase != schedule.finished
        due[wanted] = np.minimum(newest, schedule.finished)[wanted]
        return due

    def state_dict(self) -> dict[str, Any]:
        return {"lengths": torch.from_numpy(self.lengths)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.lengths = state["lengths"].numpy().copy()
