"""Recorder of the fate of each group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..rollout_schedule import NEVER
from ..trace import COLUMNS, trace_bytes
from ..training.sample_ledger import Count
from .actor_process import FinishedGroup, GroupProgress

if TYPE_CHECKING:
    import pandas as pd


DIGITS = 6  # of a second: to the microsecond


@dataclass
class GroupRecord:
    """A group that an actor was told to generate. Times in seconds since the run began."""

    actor: int
    nth: int
    fate: str = "in_flight"
    phase: int = NEVER
    place: int = NEVER
    versions: list[int] = field(default_factory=list)  # of each segment; empty: the actor had not begun
    starts: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)  # decisions of each row
    began_at: float | None = None
    made_at: float | None = None
    queued_at: float | None = None
    trained_at: float | None = None
    finished_in: int = NEVER  # the phase whose batch was the first to be taken once it was received
    left_in: int = NEVER  # the phase at whose batch it had left the queue, or was lost

    @property
    def count(self) -> Count:
        """Rows that were begun, and their decisions."""
        return Count(len(self.lengths), sum(self.lengths))

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Rows of the trace, with further columns that it leaves out."""
        return [
            {**vars(self), "versions": self.versions[:count], "ends": [*self.starts[1:count], length]}
            for length in self.lengths
            for count in [max(1, sum(start < length for start in self.starts))]
        ]


class Recorder:
    """Record of all groups, numbered in the order in which actors are told to generate them.

    generated, lost: since the learner took its last batch. Actors count what they generate; what is lost is counted
    from the record.
    """

    def __init__(self) -> None:
        self.generated, self.lost = Count(), Count()
        self.entries: list[GroupRecord] = []
        self.publish_times: list[float] = []  # when each version from 1 on was published
        self.zero = time.monotonic()  # when the run began

    def now(self) -> float:
        return time.monotonic() - self.zero

    def begin(self, actor: int, nth: int) -> int:
        """Record that an actor is told to generate a group; return the number of the group."""
        self.entries.append(GroupRecord(actor, nth))
        return len(self.entries) - 1

    def record_finished(self, group: int, group_data: FinishedGroup, phase: int) -> None:
        """Record a group that was received before the batch of a phase is taken."""
        self.record_progress(group, group_data)
        entry = self.entries[group]
        entry.made_at, entry.fate, entry.finished_in = group_data.finished_at - self.zero, "queued", phase

    def record_progress(self, group: int, progress: GroupProgress) -> None:
        """Record the progress of a group."""
        self.entries[group] = self._with_progress(group, progress)

    def _with_progress(self, group: int, progress: GroupProgress) -> GroupRecord:
        return replace(
            self.entries[group],
            versions=progress.versions,
            starts=progress.starts,
            lengths=progress.lengths,
            began_at=progress.began - self.zero,
        )

    def record_loss(self, group: int, phase: int) -> None:
        """Record that a group was lost with its actor before the batch of a phase is taken."""
        entry = self.entries[group]
        entry.fate, entry.left_in = "lost", phase
        self.lost += entry.count

    def pop_counts(self) -> tuple[Count, Count]:
        """Return (generated, lost) since the last call."""
        counts = self.generated, self.lost
        self.generated, self.lost = Count(), Count()
        return counts

    def trace(self, header: Mapping[str, Any]) -> bytes:
        """Return the trace of all groups that were begun."""
        publish_times = [round(time, DIGITS) for time in self.publish_times]
        return trace_bytes(self.rows(), {**header, "published_at": publish_times})

    def rows(self) -> pd.DataFrame:
        import pandas as pd

        lines = [{"group": g, **line} for g, entry in enumerate(self.entries) for line in entry.lines]
        table = pd.DataFrame(lines, columns=list(COLUMNS)[1:])
        table.insert(0, "row", range(len(table)))
        times = [name for name in COLUMNS if name.endswith("_at")]
        return table.astype(dict.fromkeys(times, "float64")).round(dict.fromkeys(times, DIGITS))

    def state_dict(self, unfinished_groups: Mapping[int, GroupProgress]) -> dict[str, Any]:
        """Return the record with the progress of unfinished groups, which a resumed run counts as lost."""
        entries, generated = list(self.entries), self.generated
        for group, progress in unfinished_groups.items():
            entries[group] = self._with_progress(group, progress)
            generated += progress.count
        return {
            "elapsed": self.now(),
            "entries": [dict(vars(entry)) for entry in entries],
            "published": list(self.publish_times),
            "generated": dict(vars(generated)),
            "lost": dict(vars(self.lost)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the record; groups that were unfinished or queued are lost with the processes that held them."""
        self.zero = time.monotonic() - state["elapsed"]
        self.publish_times = list(state["published"])
        self.entries = [GroupRecord(**entry) for entry in state["entries"]]
        self.generated, self.lost = Count(**state["generated"]), Count(**state["lost"])
        phase = max((entry.phase for entry in self.entries), default=NEVER) + 1  # the next one
        for group, entry in enumerate(self.entries):
            if entry.fate in ("in_flight", "queued"):
                self.record_loss(group, phase)
