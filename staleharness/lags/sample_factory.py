"""Sample Factory: actors that run until the learner has batches waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import OnStale, PipelineLag, stale_rules
from staleharness.schedule import Demand


@LAGS.register("sample_factory")
@dataclass(frozen=True)
class SampleFactory(PipelineLag):
    """Actors run with the newest weights until the learner has batches waiting.

    Actions always come from the newest weights, so weights change inside a row. Actors wait when
    `num_batches_to_accumulate` batches are ready; rows older than `max_lag` are dropped.

    Leaves out: lag in gradient steps, which is how Sample Factory counts (`max_policy_lag` is 1000 of those), and
    the two halves of an actor's environments, which take turns.
    """

    paper = "Sample Factory, arXiv 2006.11751; sample-factory 2.x"

    num_batches_to_accumulate: float = 2.0  # batches
    max_lag: int = -1  # phases; -1: any
    on_stale: OnStale = "drop_group"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("num_batches_to_accumulate", self.num_batches_to_accumulate >= 1, "at least 1 batch")
        self.require("max_lag", self.max_lag >= -1, "0 or above, or -1")

    def rules(self, demand: Demand) -> dict[str, Any]:
        queue = {"capacity": self.num_batches_to_accumulate, "in_flight": "switch"}
        return queue | stale_rules(self.max_lag, self.on_stale)
