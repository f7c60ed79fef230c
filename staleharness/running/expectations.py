"""What a plan can say of its lag before anything runs."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.text import number
from ..lag import read_lag
from ..simulator.expected_lag import WIDEST, expected_lag
from ..statistics.table_notes import SHORT_LAG
from .plan import Plan


def on_lag(plan: Plan) -> list[str]:
    """A line for each lag model and capacity whose mean lag the runs are too short for."""
    return list(dict.fromkeys(_lines(plan)))


def _lines(plan: Plan) -> Iterator[str]:
    asked = {(run.spec.capacity, run.spec.lag, run.spec.phases): run.spec for run in plan.runs}
    for (k, lag, phases), spec in sorted(asked.items()):
        said = expected_lag(spec, read_lag(lag))
        if said is None or said.mean is None or said.expected is None:
            continue
        if said.expected < SHORT_LAG * said.mean:
            least = "over " if k > WIDEST else ""
            yield (
                f"less lag than it looks: LAG={lag} at K={k} has a mean lag of {least}{number(said.mean)} phases once "
                f"the buffer is full, and of {number(said.expected)} over the {phases} phases of a run"
            )
