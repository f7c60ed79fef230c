"""RLlib, APPO and IMPALA: a short queue that throws its oldest batches away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag
from staleharness.schedule import Demand


@LAGS.register("rllib_appo")
@dataclass(frozen=True)
class RLlibAPPO(PipelineLag):
    """A short queue that throws its oldest batches away.

    Rows are made with the weights that were newest when they began, and wait in a queue of `queue` batches. When it is
    full, the oldest are dropped. Weights are sent every `broadcast_interval` steps.

    Leaves out: replay of batches (`minibatch_buffer_size`), and the target network, which belongs to the method.
    """

    paper = "RLlib (Ray 2.40 and later); pull request 48702"

    queue: float = 3.0  # batches
    broadcast_interval: int = 1  # steps

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("queue", self.queue >= 1, "at least 1 batch")
        self.require("broadcast_interval", self.broadcast_interval >= 1, "at least 1 step")

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"capacity": self.queue, "full": "drop_oldest", "sync_every": self.broadcast_interval}
