"""verl, fully asynchronous: a share of stale rows, and a sync every few steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag
from staleharness.schedule import Demand


@LAGS.register("verl_fully_async")
@dataclass(frozen=True)
class VerlFullyAsync(PipelineLag):
    """A share of stale rows between two syncs, which are some steps apart.

    Between two syncs, `trigger_parameter_sync_step` steps apart, (1 + staleness_threshold) times as many groups are
    generated as are trained. With `partial_rollout`, rows under way take new weights; without it, they finish first.

    Leaves out: `require_batches`. verl counts versions by sync; lags here are counted by step.
    """

    paper = "verl, recipe fully_async_policy, 2026-08"

    staleness_threshold: float = 0.1  # share
    trigger_parameter_sync_step: int = 4  # steps
    partial_rollout: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("staleness_threshold", self.staleness_threshold >= 0, "0 or above")
        self.require("trigger_parameter_sync_step", self.trigger_parameter_sync_step >= 1, "at least 1 step")

    def rules(self, demand: Demand) -> dict[str, Any]:
        every = self.trigger_parameter_sync_step
        return {
            "cap": every * (1 + self.staleness_threshold) - 1,
            "sync_every": every,
            "in_flight": "switch" if self.partial_rollout else "drain",
            "blocking": not self.partial_rollout,
        }
