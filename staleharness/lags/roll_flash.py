"""ROLL Flash: a ratio of rows under way, and a bound on the version that began them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import OnStale, PipelineLag, stale_rules
from staleharness.schedule import Demand


@LAGS.register("roll_flash")
@dataclass(frozen=True)
class RollFlash(PipelineLag):
    """A ratio of rows under way to those of a batch, and a bound on the version that began a row.

    At most (1 + async_generation_ratio) batches are under way or waiting. The batch of step n has only groups begun by
    version n − async_generation_ratio or a later one. Rows under way take new weights, and groups that have become too
    old are aborted.

    Leaves out: queues by expected length. In a run, an aborted row is made to its end, and not trained on.
    """

    paper = "ROLL Flash, arXiv 2510.11345; alibaba/ROLL, 2026-08"

    async_generation_ratio: float = 2.0  # batches
    on_stale: OnStale = "drop_group"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("async_generation_ratio", self.async_generation_ratio >= 0, "0 or above")

    def rules(self, demand: Demand) -> dict[str, Any]:
        gate = {"cap": self.async_generation_ratio, "in_flight": "switch"}
        return gate | stale_rules(int(self.async_generation_ratio), self.on_stale, stop=True)
