"""Trace of a simulated pipeline: a line per row, with seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..trace import trace_bytes
from .pipeline_record import FATES, TRAINED, PipelineRecord, end_steps
from .row_schedule_and_ledger import places

if TYPE_CHECKING:
    import pandas as pd


def trace_of(record: PipelineRecord) -> pd.DataFrame:
    """Return a table with one line per row that began, in order."""
    import pandas as pd

    n = len(record.slot)
    first = np.searchsorted(record.stretch_row, np.arange(n))
    trained = record.fate == TRAINED
    table = pd.DataFrame(
        {
            "row": np.arange(n),
            "group": np.arange(n) // record.pipeline.group,
            "actor": record.slot,
            "fate": np.array(FATES)[record.fate],
            "phase": record.step,
            "versions": np.split(record.stretch_version, first[1:]),
            "ends": np.split(record.stretch_end, first[1:]),
            "began_at": record.start_time,
            "made_at": record.finish_time,
            "queued_at": record.queue_time,
            "trained_at": np.where(trained, record.step_start[record.step], np.nan),
            "finished_in": end_steps(record),
            "left_in": record.exit_step,
        }
    )
    # by time: a row that a failure stopped may begin again in another slot, after rows with higher numbers
    table.insert(3, "nth", table.sort_values("began_at", kind="stable").groupby("actor").cumcount())
    table.insert(6, "place", places(record))
    return table


def to_parquet(record: PipelineRecord) -> bytes:
    """Return the trace as the content of a Parquet file."""
    header = {"source": "pipeline", "seed": record.seed, "warm_up": record.warm, "pipeline": record.pipeline.to_json()}
    return trace_bytes(trace_of(record), header)
