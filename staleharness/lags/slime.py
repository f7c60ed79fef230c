"""slime: one batch ahead, with weights that are sent now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag
from staleharness.schedule import Demand


@LAGS.register("slime")
@dataclass(frozen=True)
class Slime(PipelineLag):
    """One batch ahead of the trainer, with weights that are sent every few steps.

    The next batch is generated while this one trains. Weights are sent every `update_weights_interval` steps, once the
    batch being generated is finished. Lags are 1 to `update_weights_interval`, in turn.

    Leaves out: the fully asynchronous example, which has no rule about lag, and partial rollouts (see `partial`).
    """

    paper = "THUDM/slime train_async.py, 2026-08"

    update_weights_interval: int = 1  # steps

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("update_weights_interval", self.update_weights_interval >= 1, "at least 1 step")

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {
            "unit": "batch",
            "order": "submitted",
            "cap": 1.0,
            "cap_version": "trainer",
            "sync_every": self.update_weights_interval,
            "in_flight": "drain",
            "blocking": True,
        }
