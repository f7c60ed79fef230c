"""AReaL: admission by a bound on staleness, and generation that takes new weights in the middle of a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag
from staleharness.schedule import Demand


@LAGS.register("areal")
@dataclass(frozen=True)
class AReaL(PipelineLag):
    """Admission by a bound on staleness; rows under way take new weights.

    A group may begin while fewer than (version + 1 + eta) batches have begun (`max_head_offpolicyness`). That bounds
    how much is under way or waiting, and so the mean lag: where it binds, the mean is eta. It bounds no single row:
    others overtake a slow row, which is older by as many versions as they make. K has to hold the oldest row.

    Leaves out: rebuilding the cache of a row that takes new weights, and `should_accept_fn`.
    """

    paper = "AReaL, arXiv 2505.24298; inclusionAI/AReaL, 2026-05"

    longest: ClassVar[str] = "eta bounds the mean lag; a slow row is passed by others, and older"

    eta: float = 4.0  # versions, of the mean lag
    interruptible: bool = True  # rows under way take new weights

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("eta", self.eta >= 0, "0 or above")

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"cap": self.eta, "in_flight": "switch" if self.interruptible else "keep"}
