"""Summaries and samples of pipelines, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_settings import Pipeline
from staleharness.pipeline.pipeline_summary import summary
from staleharness.pipeline.workload_sampler import Workload


def summary_of(seed: int = 0, **settings: Any) -> dict[str, Any]:
    """Return the summary of a pipeline with these settings."""
    return summary(simulate(Pipeline(**settings), seed))


def lengths(groups: int = 8192, **settings: Any) -> NDArray[np.float64]:
    """Return a sample of lengths, of another seed than any pipeline here."""
    work = Workload(Pipeline(**settings), 12345)
    for _ in range(groups):
        work.next_group()
    return np.array(work.tokens, dtype=float)
