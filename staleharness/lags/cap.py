"""A bound on lag, around any model that draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from staleharness.errors import UserError
from staleharness.lag import LAGS, Assignment, Draw, LagModel, keep, read_lag

ATTEMPTS = 10_000  # draws of a row, until one is young enough


@LAGS.register("cap")
@dataclass(frozen=True)
class Cap(LagModel):
    """No row is more than `max` phases old; `on_stale` says what becomes of one that would be.

    Rows of the model `of` that are more than `max` phases old are not trained on. `evict` drops them and draws others
    in their place. `requeue` makes them again with the newest version. With `withhold`, an actor takes no work that
    would become older, so their lag is `max`. The results count such rows (`lag_dropped`, `lag_waited`).

    Leaves out: what a bound does to the pace of a system, and thereby to all other rows; pipelines have their own
    bounds.
    """

    family: ClassVar[str] = "around another model"

    max: int  # phases
    on_stale: Literal["evict", "requeue", "withhold"] = "evict"
    of: str = "uniform"  # a lag model

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("max", self.max >= 0, "0 or above")
        model = self.model
        self.require(
            "of", model.drawn and not model.within_rows, "a model that draws, and whose rows keep their version"
        )
        object.__setattr__(self, "of", model.text)

    @cached_property
    def model(self) -> LagModel:
        return read_lag(self.of)

    def at(self, capacity: int) -> LagModel:
        return replace(self, of=self.model.at(capacity).text)

    def assign(self, draw: Draw) -> Assignment:
        bound = draw.phase - self.max
        versions = self.model.assign(draw).starts
        stale = versions < bound
        if self.on_stale == "withhold":
            return replace(keep(np.maximum(versions, bound)), ledger={"waited": int(stale.sum())})
        if self.on_stale == "requeue":
            return replace(keep(np.where(stale, draw.phase, versions)), ledger={"dropped": int(stale.sum())})
        self._within(draw.phase, draw.capacity)
        dropped, attempt = 0, 0
        while stale.any():
            attempt += 1
            if attempt > ATTEMPTS:
                raise UserError(f"LAG={self.text} starves in phase {draw.phase}: {ATTEMPTS:,} draws were all too old")
            dropped += int(stale.sum())
            again = self.model.assign(replace(draw, key=(*draw.key, attempt))).starts
            versions = np.where(stale, again, versions)
            stale = versions < bound
        return replace(keep(versions), ledger={"dropped": dropped})

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        drawn = self.model.probabilities(phase, capacity)
        if self.on_stale == "evict":
            young = self._within(phase, capacity)
            return {version: p / sum(young.values()) for version, p in young.items()}
        found: dict[int, float] = {}
        for version, p in drawn.items():
            if version < phase - self.max:
                version = phase if self.on_stale == "requeue" else phase - self.max
            found[version] = found.get(version, 0.0) + p
        return found

    def oldest(self, phase: int) -> int:
        return max(self.model.oldest(phase), phase - self.max)

    def check(self, capacity: int) -> None:
        self.model.check(capacity)
        if self.on_stale == "evict":
            for phase in range(4 * capacity):
                self._within(phase, capacity)

    def parts(self) -> tuple[LagModel, ...]:
        return (self, *self.model.parts())

    def _within(self, phase: int, capacity: int) -> dict[int, float]:
        """Version -> probability, of those that are not evicted. Raises `UserError` where there is none."""
        drawn = self.model.probabilities(phase, capacity)
        young = {version: p for version, p in drawn.items() if version >= phase - self.max}
        if not young:
            raise UserError(
                f"LAG={self.text} starves in phase {phase}: {self.of} draws nothing of a lag up to {self.max}"
            )
        return young
