"""Megatron-RL: units in which rows are submitted, and units in which they are consumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag
from staleharness.schedule import Demand


@LAGS.register("megatron")
@dataclass(frozen=True)
class Megatron(PipelineLag):
    """Units in which rows are submitted, and units in which they are consumed.

    (1 + lag) batches are under way, in units of rows (R), groups (G) or batches (B). What is consumed in B waits for
    its whole batch, in the order of submission. B/B is exactly `lag` versions behind; G/G is (1 + lag) behind on
    average, and R/G that times the tail of a group. G/B and R/B are older than the published law says
    (docs/pipeline.md).

    Leaves out: training time, as the published laws do, so that of the rows' timing only `cv` matters; new weights
    inside a row; and a `lag` that tunes itself.
    """

    paper = "NVIDIA/Megatron-LM megatron/rl/README.md, 2026"

    lag: float = 1.0  # batches under way, but the first
    submit: Literal["R", "G", "B"] = "B"
    consume: Literal["G", "B"] = "B"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("lag", -1 <= self.lag <= 1000, "from -1 to 1000")
        self.require("consume", self.submit != "B" or self.consume == "B", "B where submit is B")

    def rules(self, demand: Demand) -> dict[str, Any]:
        unit = {"R": "row", "G": "group", "B": "batch"}[self.submit]
        rows = {"R": 1, "G": demand.rows, "B": demand.groups * demand.rows}[self.submit]
        tasks = max(1, round((1 + self.lag) * demand.groups * demand.rows / rows))
        cap = {"cap": tasks - 1.0} if self.submit == "B" else {}
        order = "submitted" if self.consume == "B" else "completed"
        return {"unit": unit, "slots": tasks * rows, "order": order, "train_seconds": 0.0, "blocking": True, **cap}
