"""Lag models that wrap another lag model: a sync of all actors, and a bound on lag."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from staleharness.errors import UserError
from staleharness.lag import LAGS, Assignment, Draw, DrawnLag, LagModel, keep, option, read_lag


class _Wrapper(LagModel):
    """Lag model that wraps another one, named by its option `of`."""

    family = "around another model"

    @cached_property
    def model(self) -> LagModel:
        """The wrapped model."""
        raise NotImplementedError

    def parts(self) -> tuple[LagModel, ...]:
        return (self, *self.model.parts())


@LAGS.register("sync")
@dataclass(frozen=True)
class PeriodicSync(_Wrapper):
    """Hard sync every `every` phases: all actors get the newest version, and earlier versions are no longer used.

    Between syncs the model `of` draws as if the run had begun at the last sync, so no lag exceeds phase mod every.
    Without `of`, actors fetch no weights in between, and lag rises from 0 to every − 1 after each sync.
    """

    every: int = option(least=1, unit="phase")  # phases
    of: str = ""  # a lag model

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(
            "of",
            self.model.drawn and not self.model.within_rows and not isinstance(self.model, PeriodicSync),
            "a model whose rows keep their version, drawn in each phase, and that has no sync of its own",
        )
        if self.of:
            object.__setattr__(self, "of", self.model.text)

    @cached_property
    def model(self) -> LagModel:
        return read_lag(self.of or f"fixed:{self.every - 1}")

    @property
    def text(self) -> str:
        return f"{self.of}/sync:{self.every}" if self.of else f"sync:{self.every}"

    def assign(self, draw: Draw) -> Assignment:
        since = self.model.assign(replace(draw, phase=draw.phase % self.every))
        return replace(since, versions=self._last(draw.phase) + since.versions)

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        since = self.model.probabilities(phase % self.every, capacity)
        return {self._last(phase) + version: p for version, p in since.items()}

    def oldest(self, phase: int) -> int:
        return self._last(phase) + self.model.oldest(phase % self.every)

    def check(self, capacity: int) -> None:
        if self.of:
            self.model.check(capacity)
        else:
            self.require_buffer(self.every, capacity)

    def _last(self, phase: int) -> int:
        """Return the phase of the last sync."""
        return phase - phase % self.every


ATTEMPTS = 10_000  # redraws of the rows above the bound, before the run fails


@LAGS.register("cap")
@dataclass(frozen=True)
class LagBound(_Wrapper):
    """No row is more than `max` phases old; `on_stale` decides what happens to a row that would be.

    `evict` drops such rows of the model `of` and draws others in their place. `requeue` generates them again with the
    newest version. With `withhold`, an actor takes no work that would become older, so such rows have lag `max`. The
    results count these rows (`lag_dropped`, `lag_waited`).

    Leaves out: the effect of a bound on the speed of a system, and thereby on all other rows; pipelines have their own
    bounds.
    """

    max: int = option(least=0)  # phases
    on_stale: Literal["evict", "requeue", "withhold"] = "evict"
    of: str = "uniform"  # a lag model

    def __post_init__(self) -> None:
        super().__post_init__()
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
            redraw = self.model.assign(replace(draw, key=(*draw.key, attempt))).starts
            versions = np.where(stale, redraw, versions)
            stale = versions < bound
        return replace(keep(versions), ledger={"dropped": dropped})

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        if self.on_stale == "evict":
            young = self._within(phase, capacity)
            return {version: p / sum(young.values()) for version, p in young.items()}
        share: dict[int, float] = {}
        for version, p in self.model.probabilities(phase, capacity).items():
            if version < phase - self.max:
                version = phase if self.on_stale == "requeue" else phase - self.max
            share[version] = share.get(version, 0.0) + p
        return share

    def oldest(self, phase: int) -> int:
        return max(self.model.oldest(phase), phase - self.max)

    def check(self, capacity: int) -> None:
        self.model.check(capacity)
        if self.on_stale == "evict" and not self._is_young(capacity):
            for phase in range(4 * capacity):
                self._within(phase, capacity)

    def _is_young(self, capacity: int) -> bool:
        """Return True if one phase shows that every phase has versions within the bound: if a single distribution is
        truncated at the end of the buffer, a lag that occurs in a full buffer also occurs in every smaller buffer that
        is long enough."""
        if self.of != "uniform" and not isinstance(self.model, DrawnLag):
            return False
        newest = capacity - 1
        return max(self.model.probabilities(newest, capacity)) >= newest - self.max

    def _within(self, phase: int, capacity: int) -> dict[int, float]:
        """Return {version: unnormalised probability} within the bound. Raises `UserError` if there is none."""
        model = self.model.probabilities(phase, capacity)
        young = {version: p for version, p in model.items() if version >= phase - self.max}
        if not young:
            raise UserError(
                f"LAG={self.text} starves in phase {phase}: {self.of} draws nothing of a lag up to {self.max}"
            )
        return young
