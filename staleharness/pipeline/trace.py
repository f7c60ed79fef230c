"""The trace of a simulated pipeline."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..trace import written
from .lag import TRAINED
from .log import FATES, Record
from .schedule import ended, finished_in


def trace_of(record: Record) -> pd.DataFrame:
    """One line per row that began, in order."""
    n = len(record.slot)
    first = np.searchsorted(record.stretch_row, np.arange(n))
    trained_at = np.full(n, np.nan)
    trained = record.fate == TRAINED
    trained_at[trained] = record.step_began[record.step[trained]]
    table = pd.DataFrame(
        {
            "row": np.arange(n),
            "group": np.arange(n) // record.pipeline.group,
            "actor": record.slot,
            "fate": np.array(FATES)[record.fate],
            "phase": record.step,
            "versions": np.split(record.stretch_version, first[1:]),
            "ends": np.split(record.stretch_end, first[1:]),
            "began_at": record.began,
            "made_at": record.made,
            "queued_at": record.queued,
            "trained_at": trained_at,
            "finished_in": finished_in(ended(record), record.step_began),
            "left_in": record.left,
        }
    )
    table.insert(3, "nth", table.groupby("actor").cumcount())
    place = table.groupby("phase").cumcount() // record.pipeline.group  # in the order in which groups began
    table.insert(6, "place", np.where(trained, place, -1))
    return table


def to_parquet(record: Record) -> bytes:
    """The trace as the content of a Parquet file."""
    said = {"source": "pipeline", "seed": record.seed, "warm_up": record.warm}
    return written(trace_of(record), {**said, "pipeline": record.pipeline.to_json()})
