"""The flight recorder: what became of each group, written down as it happens."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..schedule import NEVER
from ..trace import written
from .actor import Made

if TYPE_CHECKING:
    import pandas as pd


DIGITS = 6  # of a second: to the microsecond


@dataclass
class Entry:
    """A group that an actor was told to make. Times in seconds since the run began."""

    actor: int
    nth: int
    fate: str = "in_flight"
    phase: int = NEVER
    place: int = NEVER
    versions: list[int] = field(default_factory=list)  # of each stretch; empty: the actor had not begun
    starts: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # decisions of each row
    began_at: float | None = None
    made_at: float | None = None
    queued_at: float | None = None
    trained_at: float | None = None
    finished_in: int = NEVER  # the phase whose batch was the first to be taken once it was handed over
    left_in: int = NEVER  # at whose batch it had left the queue

    def lost(self, phase: int) -> Entry:
        """Where whoever held it is gone before the batch of a phase is taken; nobody counted what was handed over since
        the batch before."""
        if 0 <= self.finished_in < phase:
            return replace(self, fate="lost", left_in=phase)
        return replace(self, fate="lost", finished_in=NEVER)

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What a trace says of each row."""
        return [
            {
                "actor": self.actor,
                "nth": self.nth,
                "fate": self.fate,
                "phase": self.phase,
                "place": self.place,
                "versions": self.versions[:count],
                "ends": [*self.starts[1:count], length],
                "began_at": self.began_at,
                "made_at": self.made_at,
                "queued_at": self.queued_at,
                "trained_at": self.trained_at,
                "finished_in": self.finished_in,
                "left_in": self.left_in,
            }
            for length in self.lengths
            for count in [max(1, sum(start < length for start in self.starts))]
        ]


class Recorder:
    """Groups are numbered in the order in which actors are told to make them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.published: list[float] = []  # when each version from 1 on was announced
        self.zero = time.monotonic()  # when the run began

    def now(self) -> float:
        return time.monotonic() - self.zero

    def begin(self, actor: int, nth: int) -> int:
        """An actor is told to make a group; its number."""
        self.entries.append(Entry(actor, nth))
        return len(self.entries) - 1

    def made(self, group: int, said: Made, phase: int) -> None:
        """What the actor says of it before the batch of a phase is taken, also where it was stopped."""
        entry = self.entries[group]
        entry.versions, entry.starts, entry.lengths = said.versions, said.starts, said.lengths
        entry.began_at = said.began - self.zero
        entry.made_at = None if said.made is None else said.made - self.zero
        if said.made is None:
            entry.fate = "in_flight"
        else:
            entry.fate, entry.finished_in = "queued", phase

    def lost(self, group: int, version: int, lengths: list[int]) -> None:
        """Its actor died, this far into rows that began with a version."""
        entry = self.entries[group]
        entry.fate, entry.versions, entry.starts, entry.lengths = "lost", [version], [0], lengths

    def trace(self, header: Mapping[str, Any]) -> bytes:
        """The trace of all groups that were begun."""
        published = [round(time, DIGITS) for time in self.published]
        return written(self.rows(), {**header, "published_at": published})

    def rows(self) -> pd.DataFrame:
        import pandas as pd

        from ..trace import COLUMNS

        lines = [{"group": g, **line} for g, entry in enumerate(self.entries) for line in entry.lines]
        table = pd.DataFrame(lines, columns=list(COLUMNS)[1:])
        table.insert(0, "row", range(len(table)))
        times = [name for name in COLUMNS if name.endswith("_at")]
        return table.astype(dict.fromkeys(times, "float64")).round(dict.fromkeys(times, DIGITS))

    def state_dict(self) -> dict[str, Any]:
        entries = [dict(vars(entry)) for entry in self.entries]
        return {"elapsed": self.now(), "entries": entries, "published": list(self.published)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """What was under way or queued is lost: the processes that held it are gone."""
        self.zero = time.monotonic() - state["elapsed"]
        self.published = list(state["published"])
        found = [Entry(**entry) for entry in state["entries"]]
        phase = max((entry.phase for entry in found), default=NEVER) + 1  # that comes next
        self.entries = [e.lost(phase) if e.fate in ("in_flight", "queued") else e for e in found]
