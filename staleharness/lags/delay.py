"""A delay line: data wait in a queue of whole phases before they are trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from staleharness.lag import DRAWN, LAGS, Assignment, Draw, LagModel, keep
from staleharness.rollout_schedule import NEVER, Demand, Schedule

REST = -1  # for `lag`: as long as the buffer allows


@LAGS.register("delay")
@dataclass(frozen=True)
class Delay(LagModel):
    """Data are trained on `lag` phases after they were generated, or K − 1 phases if no `lag` is given.

    With `warm_up=skip`, nothing is trained on while the queue fills, as in the code of PPO-EWMA and M2PO: the first
    lag + 1 batches all come from the first policy, and each is trained on once. With mechanism=replay, `reuse` trains
    on the first batch lag + 1 times. That is over-fitting, not delay; it is included for comparison (with
    mechanism=replay, `fixed` and `oldest` do the same). `ramp` increases the lag by one every other phase, so that no
    batch is trained on more than twice.

    Leaves out: lag within a phase; all rows of a phase are equally old.
    """

    paper = "PPO-EWMA, arXiv 2110.00641; M2PO, arXiv 2510.01161"

    family: ClassVar[str] = DRAWN

    lag: int = REST  # phases
    warm_up: Literal["skip", "reuse", "ramp"] = "skip"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("lag", self.lag >= REST, "0 or above, or -1 for K - 1")

    @property
    def drawn(self) -> bool:
        return self.warm_up != "skip"

    def at(self, capacity: int) -> LagModel:
        return replace(self, lag=capacity - 1) if self.lag == REST else self

    def check(self, capacity: int) -> None:
        self.require_buffer(self.lag + 1, capacity)

    def schedule(self, demand: Demand) -> Schedule:
        """Return a schedule in which each actor generates one group per phase; its last `lag` groups stay queued."""
        phases, rows = demand.phases + self.lag, demand.groups * demand.rows
        made = np.repeat(np.arange(phases), rows)
        place = np.tile(np.repeat(np.arange(demand.groups), demand.rows), phases)
        trained = made < demand.phases
        accounts = {
            name: {"generated": phases * n, "trained": demand.phases * n, "queued": self.lag * n}
            for name, n in (("rows", rows), ("decisions", rows * demand.length))
        }
        return Schedule(
            group=made * demand.groups + place,
            actor=place,
            nth=made,
            phase=np.where(trained, made, NEVER),
            place=np.where(trained, place, NEVER),
            first=np.arange(len(made) + 1),
            version=np.maximum(0, made - self.lag),
            end=np.full(len(made), demand.length),
            kept=np.ones(len(made), dtype=np.bool_),
            ledger=accounts,
        )

    def assign(self, draw: Draw) -> Assignment:
        return keep(np.full(draw.slots, self._version(draw.phase, draw.capacity)))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        return {self._version(phase, capacity): 1.0}

    def _version(self, phase: int, capacity: int) -> int:
        lag = capacity - 1 if self.lag == REST else self.lag
        return phase - min(phase // 2 if self.warm_up == "ramp" else phase, lag)
