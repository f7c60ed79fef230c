"""Windowed FIFO: in the order of submission, but a slow group may be passed by some."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag
from staleharness.schedule import Demand


@LAGS.register("windowed_fifo")
@dataclass(frozen=True)
class WindowedFifo(PipelineLag):
    """In the order of submission, but a window of others may overtake a slow group.

    A group may begin while fewer than (version + 1 + staleness) batches have begun. The trainer takes finished groups
    among the first `window` of those (as a share of all that may be under way). No group is older than
    staleness + ⌈(W − 1)/P⌉, with W groups in the window and P in a batch; a window of 0 is strict order.

    Leaves out: nothing that lag depends on.
    """

    paper = "torchtitan windowed_fifo.md; MiniMax, arXiv 2605.26494"

    staleness: int = 2  # versions
    window: float = 0.3  # share of (staleness + 1) batches

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("staleness", self.staleness >= 0, "0 or above")
        self.require("window", 0 <= self.window <= 1, "from 0 to 1")

    def rules(self, demand: Demand) -> dict[str, Any]:
        window = max(1, int(self.window * (self.staleness + 1) * demand.groups))
        return {"cap": float(self.staleness), "order": "window", "window": window}
