"""SkyRL, fully asynchronous: a bound on what is under way, and on nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag
from staleharness.schedule import Demand


@LAGS.register("skyrl")
@dataclass(frozen=True)
class SkyRL(PipelineLag):
    """Admission by a bound on what is under way; nothing is too old to be trained on.

    A group may begin while fewer than (version + 1 + max_staleness_steps) batches have begun; rows under way
    take new weights. Where the bound binds, it is the mean lag. SkyRL warns about older groups, and trains on them.

    Leaves out: groups without a difference in reward, which `sample_full_batch` replaces.
    """

    paper = "NovaSky-AI/SkyRL, fully_async_trainer, 2026-08"

    max_staleness_steps: int = 4  # versions

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("max_staleness_steps", self.max_staleness_steps >= 0, "0 or above")

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"cap": float(self.max_staleness_steps), "in_flight": "switch"}
