"""Cleanba: actor and learner side by side, one version apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag
from staleharness.schedule import Demand


@LAGS.register("cleanba")
@dataclass(frozen=True)
class Cleanba(PipelineLag):
    """Always one version behind, except for the first batch.

    The actor skips the weight fetch before its second rollout, and the queue between actor and learner holds one.

    Leaves out: several actor threads, whose rollouts reach the learner together.
    """

    paper = "Cleanba, arXiv 2310.00036; its code at the second update"

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"unit": "batch", "cap": 1.0, "order": "submitted"}
