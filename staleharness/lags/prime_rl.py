"""prime-rl: batches that may be finished ahead of the trainer, and a bound on the oldest decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staleharness.lag import LAGS
from staleharness.pipeline_lag import OnStale, PipelineLag, stale_rules
from staleharness.schedule import Demand


@LAGS.register("prime_rl")
@dataclass(frozen=True)
class PrimeRL(PipelineLag):
    """A gate on batches that are finished ahead, and a bound on the age of a group.

    No group begins while `target_lag` batches are finished beyond the one that trains. Rows under way take new weights.
    A group that becomes more than `max_off_policy_steps` old is dropped: at once if it is under way, otherwise when it
    would be trained.

    Leaves out: the hold on shipping a batch, as the trainer's own pace has the same effect. On control, the rows of a
    stopped group are acted to their end, and counted as far as they had got.
    """

    paper = "PrimeIntellect-ai/prime-rl, 2026-08; issues 2812 and 3310"

    target_lag: int = 1  # batches
    max_off_policy_steps: int = 8  # versions
    on_stale: OnStale = "drop_group"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("target_lag", self.target_lag >= 1, "at least 1 batch")
        self.require("max_off_policy_steps", self.max_off_policy_steps >= 0, "0 or above")

    def rules(self, demand: Demand) -> dict[str, Any]:
        counts = "begun" if self.on_stale == "withhold" else "finished"
        gate = {"cap": float(self.target_lag), "cap_counts": counts, "in_flight": "switch"}
        return gate | stale_rules(self.max_off_policy_steps, self.on_stale, stop=True)
