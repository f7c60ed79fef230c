"""Partial rollouts: what is unfinished when a batch is full is cut, and goes on under the new weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import PipelineLag, rows_of, stale_rules
from staleharness.schedule import Demand


@LAGS.register("partial")
@dataclass(frozen=True)
class Partial(PipelineLag):
    """Rows that are unfinished when a batch is full are cut, and go on under the new weights.

    `oversample` batches are generated at once. Generation stops when one of them is finished and while it trains; the
    rest goes on afterwards. With `mask`, the decisions before the last cut are left out of the loss.

    Leaves out: a bound on how often a row may be cut.
    """

    paper = "Kimi k1.5, arXiv 2501.12599; slime partial-rollout and mask-offpolicy-in-partial-rollout"

    oversample: float = 2.0  # batches
    mask: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("oversample", self.oversample >= 1, "at least 1 batch")

    def rules(self, demand: Demand) -> dict[str, Any]:
        # The clock is that of generation, for which training takes no time
        cut = {"in_flight": "switch", "train_seconds": 0.0}
        bound = stale_rules(0, "mask_tokens") if self.mask else {}
        return {"cap": self.oversample - 1, "slots": rows_of(self.oversample, demand), **cut, **bound}
