"""Actors that run freely, and a queue of finished groups before the learner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from staleharness.lag import LAGS
from staleharness.pipeline_lag_model import OnStale, PipelineLag, stale_rules
from staleharness.rollout_schedule import Demand


@LAGS.register("queue")
@dataclass(frozen=True)
class Queue(PipelineLag):
    """Actors that run freely, and a queue of finished groups before the learner.

    First in, first out. When `capacity` batches wait, actors pause (`block`), or the oldest or newest group is dropped.
    Data older than `max_lag` when their turn comes are not trained on; `on_stale` decides what happens to them.

    Leaves out: any rule on which groups may begin; the named systems have such rules.
    """

    capacity: float = 2.0  # batches
    full: Literal["block", "drop_oldest", "drop_newest"] = "block"
    max_lag: int = -1  # versions; -1: no bound
    on_stale: OnStale = "drop_group"
    in_flight: bool = False  # in-flight rows switch to new weights

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("capacity", self.capacity >= 1, "at least 1 batch")
        self.require("max_lag", self.max_lag >= -1, "0 or above, or -1")
        self.require("on_stale", self.on_stale != "withhold" or self.full == "block", "another where full drops")

    def rules(self, demand: Demand) -> dict[str, Any]:
        queue: dict[str, Any] = {
            "capacity": self.capacity,
            "full": self.full,
            "in_flight": "switch" if self.in_flight else "keep",
        }
        if self.on_stale == "withhold" and self.max_lag >= 0:
            queue["capacity"] = None  # in strict order a slow group may hold up any number of others
        return queue | stale_rules(self.max_lag, self.on_stale)
