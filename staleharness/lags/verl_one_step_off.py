"""verl with one step off: the next batch is generated while this one trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag
from staleharness.schedule import Demand


@LAGS.register("verl_one_step_off")
@dataclass(frozen=True)
class VerlOneStepOff(PipelineLag):
    """Always one version behind, except for the first batch.

    Generation takes the newest weights when a batch begins to train, and makes all of the next batch with them.

    Leaves out: nothing that lag depends on; `slots`, `row_time` and `cv` affect time alone.
    """

    paper = "verl, recipe one_step_off_policy, 2026-08"

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"unit": "batch", "cap": 1.0, "order": "submitted"}
