"""A hard sync now and then, behind any other model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from staleharness.lag import LAGS, Assignment, Draw, LagModel, read_lag


@LAGS.register("sync")
@dataclass(frozen=True)
class Sync(LagModel):
    """A hard sync every `every` phases: all actors get the newest version and forget what came before.

    Between syncs the model `of` draws as if the run had begun at the last sync, so no lag exceeds phase mod every.
    Without `of`, actors fetch nothing in between, and the lag is a sawtooth.
    """

    family: ClassVar[str] = "around another model"

    every: int  # phases
    of: str = ""  # a lag model

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("every", self.every >= 1, "at least 1 phase")
        self.require(
            "of",
            self.model.drawn and not self.model.within_rows and not isinstance(self.model, Sync),
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

    def parts(self) -> tuple[LagModel, ...]:
        return (self, *self.model.parts())

    def _last(self, phase: int) -> int:
        """When the last sync was."""
        return phase - phase % self.every
