"""PipelineRL: weights that change in flight, and nothing that holds generation back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import OnStale, PipelineLag, stale_rules
from staleharness.schedule import Demand


@LAGS.register("pipeline_rl")
@dataclass(frozen=True)
class PipelineRL(PipelineLag):
    """Weights change in flight after every step, and nothing holds generation back.

    Rows take new weights after every step, and none is held back: the lag of a row's first decision follows from the
    time that the row takes. Only the newest `buffer` batches of finished groups are kept, and groups older than
    `max_lag` are dropped.

    Leaves out: lag in samples, which is how PipelineRL counts, and slots that slow down as more rows share a machine.
    """

    paper = "PipelineRL, arXiv 2509.19128; ServiceNow/PipelineRL, 2026-06"

    max_lag: int = -1  # versions; -1: any
    on_stale: OnStale = "drop_group"
    buffer: float = 1.0  # batches
    weight_update_interval: int = 1  # steps

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("max_lag", self.max_lag >= -1, "0 or above, or -1")
        self.require("buffer", self.buffer >= 1, "at least 1 batch")
        self.require("weight_update_interval", self.weight_update_interval >= 1, "at least 1 step")

    def rules(self, demand: Demand) -> dict[str, Any]:
        ring = {"capacity": self.buffer, "full": "drop_oldest"} if self.on_stale != "withhold" else {}
        send = {"in_flight": "switch", "sync_every": self.weight_update_interval}
        return ring | send | stale_rules(self.max_lag, self.on_stale)
