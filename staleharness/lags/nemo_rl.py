"""NeMo-RL with a single controller: four samplers over one buffer of finished groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from staleharness.lag import LAGS
from staleharness.pipeline_lag import OnStale, PipelineLag, stale_rules
from staleharness.schedule import Demand


@LAGS.register("nemo_rl")
@dataclass(frozen=True)
class NeMoRL(PipelineLag):
    """One buffer of finished groups, and four samplers that say which of them are trained on.

    `in_order` trains each batch as it was submitted, at most `max_staleness` steps ahead. `weight_fifo` takes groups
    with the oldest weights first, and waits for them. `ready_first` takes groups as they finish and throws none away.
    All three hold generation back. `windowed` does not until the buffer is full, and evicts groups that are more than
    `max_staleness` old.

    Leaves out: freshest-first, streaming of parts of a batch, and unfinished rows in the buffer.
    """

    paper = "NVIDIA-NeMo/RL staleness_sampler.py, 2026-08"

    max_staleness: int = 1  # versions
    sampler: Literal["in_order", "weight_fifo", "ready_first", "windowed"] = "in_order"
    buffered: float = 0.0  # batches that the buffer of `windowed` holds; 0: max_staleness + 2
    on_stale: OnStale = "drop_group"  # of `windowed`

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("max_staleness", self.max_staleness >= 0, "0 or above")
        self.require("buffered", self.buffered == 0 or self.buffered >= 1, "at least 1 batch, or 0")

    def rules(self, demand: Demand) -> dict[str, Any]:
        if self.sampler == "windowed":
            capacity = self.buffered or self.max_staleness + 2.0
            return {"capacity": capacity, "in_flight": "switch"} | stale_rules(self.max_staleness, self.on_stale)
        order = {"in_order": "submitted", "weight_fifo": "version", "ready_first": "completed"}[self.sampler]
        return {"cap": float(self.max_staleness), "order": order, "in_flight": "switch"}
