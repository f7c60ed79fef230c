"""Schedules written by hand, and the lag model `written`, which answers with the one that a test has put down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from staleharness.lag import LAGS, LagModel, cached_schedule
from staleharness.rollout_schedule import NEVER, Demand, Schedule

Segments = Sequence[tuple[int, int, bool]]  # (version, end, kept) of each


@dataclass(frozen=True)
class Group:
    """A group: who made it, the phase that trains on it or NEVER, and its segments, the same in each row."""

    actor: int
    phase: int
    segments: Segments


@dataclass(frozen=True)
class GivenSchedule(LagModel):
    """Returns the schedule that the test sets."""

    name: ClassVar[str] = "written"
    answer: ClassVar[Callable[[Demand], Schedule]]

    def schedule(self, demand: Demand) -> Schedule:
        return type(self).answer(demand)


@pytest.fixture
def given_schedule(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[Demand], Schedule]], None]]:
    """Gives `LAG=written` its answer."""
    list(LAGS)
    monkeypatch.setattr(LAGS, "_classes", {**LAGS._classes, "written": GivenSchedule})

    def say(answer: Callable[[Demand], Schedule]) -> None:
        cached_schedule.cache_clear()
        monkeypatch.setattr(GivenSchedule, "answer", staticmethod(answer), raising=False)

    yield say
    cached_schedule.cache_clear()


def schedule(groups: Sequence[Group], rows: int, **changed: Any) -> Schedule:
    """Groups of `rows` rows in the order in which they began; places as they come."""
    begun: dict[int, int] = {}
    places: dict[int, int] = {}
    columns: dict[str, list[int]] = {name: [] for name in "group actor nth phase place".split()}
    version, end, kept, first = [], [], [], [0]
    for number, made in enumerate(groups):
        nth = begun[made.actor] = begun.get(made.actor, -1) + 1
        place = places[made.phase] = places.get(made.phase, -1) + 1
        for _ in range(rows):
            values = number, made.actor, nth, made.phase, NEVER if made.phase == NEVER else place
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
            for v, e, k in made.segments:
                version.append(v), end.append(e), kept.append(k)
            first.append(len(version))
    arrays = {name: np.array(column) for name, column in columns.items()}
    segments = {"version": np.array(version), "end": np.array(end), "kept": np.array(kept)}
    ends = [made.segments[-1][1] for made in groups for _ in range(rows)]
    counts = {"rows": len(ends), "decisions": sum(ends)}
    ledger = {unit: {"generated": count, "trained": count} for unit, count in counts.items()}
    return Schedule(**{**arrays, "first": np.array(first), **segments, "ledger": ledger, **changed})


def lock_step(demand: Demand, lag: int) -> Schedule:
    """Every actor makes its t-th group with version t − lag, and phase t trains on it."""
    groups = [
        Group(actor, phase, [(max(0, phase - lag), demand.length, True)])
        for phase in range(demand.phases)
        for actor in range(demand.groups)
    ]
    return schedule(groups, demand.rows)
