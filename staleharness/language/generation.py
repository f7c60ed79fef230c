"""Generation rounds: problems drawn, versions assigned by the lag model, completions sampled and graded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..batch import Completions
from ..errors import UserError
from ..simulator.lag_stats import add_histograms
from ..simulator.policy_buffer import PolicyBuffer
from ..simulator.row_ledger import Count, Flow
from ..simulator.run_lags import Lags
from .sampler import Sampler, Seconds, concatenate

MOST_DRAWS = 20  # generation rounds in search of groups that teach something (dynamic sampling)


@dataclass
class Round:
    """A finished generation round."""

    completions: Completions
    dropped_groups: int  # that dynamic sampling turned away, or that were never to be trained on
    flow: Flow | None = None  # where not all that was made is trained on
    seconds: Seconds = field(default_factory=Seconds)


class Generator:
    """Draws from the training problems without replacement, epoch by epoch; `cursor` is where it stands."""

    def __init__(self, sampler: Sampler, lags: Lags) -> None:
        self.spec, self.sampler, self.lags = sampler.spec, sampler, lags
        self.cursor = 0

    def round(self, buffer: PolicyBuffer, phase: int) -> Round:
        """N × `prompts` groups, each acted by the version that the lag model assigns to it."""
        wanted = self.spec.minibatches * self.spec.prompts
        kept: list[Completions] = []
        seconds, drawn, dropped = Seconds(), 0, 0
        made, lost, lags = Count(), Count(), list[int]()
        while (missing := wanted - sum(_groups(part) for part in kept)) > 0:
            if drawn >= MOST_DRAWS * wanted:
                raise UserError(
                    f"dynamic sampling found {wanted - missing} of {wanted} groups that are neither all right nor all "
                    f"wrong among {drawn}; the model may be too weak or too strong for these problems"
                )
            part = self._draw(buffer, phase, drawn, missing, seconds)
            drawn += missing
            made += count(part)
            if self.spec.dynamic_sampling:
                mixed = _mixed(part.outcome, self.spec.completions)
                dropped += missing - int(mixed.sum()) // self.spec.completions
                left_out = part.rows((~mixed).nonzero()[:, 0])
                lost += count(left_out)
                lags = add_histograms(lags, torch.bincount((phase - left_out.version)[left_out.mask > 0]).tolist())
                part = part.rows(mixed.nonzero()[:, 0])
            kept.append(part)
        flow = Flow(made, dropped=lost, dropped_lags=lags)
        return Round(concatenate(kept, self.sampler.decoder.policy.pad), dropped, flow, seconds)

    def _draw(self, buffer: PolicyBuffer, phase: int, first: int, groups: int, seconds: Seconds) -> Completions:
        """`groups` more groups of this phase, the first of which is its `first`th."""
        each, length = self.spec.completions, self.spec.completion_tokens
        chosen = [self.next_problem() for _ in range(groups)]
        slots = np.arange(first, first + groups)
        assigned = self.lags.draw(phase, groups, first, length=length)
        stretch = min(assigned.every or length, length)
        versions = np.repeat(assigned.versions, each, axis=0)
        keys = [(phase, slot) for slot in slots.tolist()]
        request = self.sampler.request(chosen, keys, versions, stretch)
        return self.sampler.complete(request, buffer, chosen, slots, seconds)

    def next_problem(self) -> int:
        """The index of the next problem."""
        self.cursor += 1
        return self.sampler.problem(self.cursor - 1)

    def state_dict(self) -> dict[str, Any]:
        return {"cursor": self.cursor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.cursor = state["cursor"]


def count(part: Completions) -> Count:
    """Completions that have a token, and tokens."""
    return Count(int((part.mask.sum(1) > 0).sum()), int(part.mask.sum()))


def _groups(part: Completions) -> int:
    return len(part.group.unique())


def _mixed(outcome: Tensor, each: int) -> Tensor:
    """[B] bool: the row's group has some but not all of its completions right."""
    right = outcome.view(-1, each).sum(1)
    return ((right > 0) & (right < each)).repeat_interleave(each)
