"""Laminar: each row is made with the weights that were newest when it began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag
from staleharness.schedule import Demand


@LAGS.register("laminar")
@dataclass(frozen=True)
class Laminar(PipelineLag):
    """Each row is made with the weights that were newest when it began, and nothing bounds its lag.

    A row keeps its weights, and relays have the newest ones ready when the next row begins. Finished groups wait in a
    buffer of `buffer` batches, which holds generation back when it is full.

    Leaves out: repacking of long rows onto fewer machines, and sampling from the buffer by freshness.
    """

    paper = "Laminar, arXiv 2510.12633"

    buffer: float = 1.0  # batches

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("buffer", self.buffer >= 1, "at least 1 batch")

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"capacity": self.buffer}
