"""LlamaRL: whole batches, a fixed number of steps behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag, rows_of
from staleharness.schedule import Demand


@LAGS.register("llamarl")
@dataclass(frozen=True)
class LlamaRL(PipelineLag):
    """Whole batches, always `delay` versions behind once that many have passed.

    (1 + delay) batches are generated at once, each with one version, and trained in order.

    Leaves out: a generator that is too slow for the delay and would lag less.
    """

    paper = "LlamaRL, arXiv 2505.24034"

    delay: int = 2  # versions

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("delay", self.delay >= 0, "0 or above")

    def rules(self, demand: Demand) -> dict[str, Any]:
        slots = rows_of(1 + self.delay, demand)
        return {"unit": "batch", "cap": float(self.delay), "order": "submitted", "slots": slots}
