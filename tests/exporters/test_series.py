"""A run's time since its start, and the columns of its timing by name: memory is no time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from results_helper import write_run

from staleharness.exporters.exporter import phases


def test_time_adds_up_over_phases_and_memory_is_no_part_of_it(tmp_path: Path) -> None:
    run = write_run(tmp_path, phases=3)
    parts = {"collect": [1.0, 2.0, 3.0], "learn": [0.5, 0.5, 0.5], "evaluate": [0.0, 0.0, 1.0]}
    timing = pd.DataFrame({**parts, "train": [0.4] * 3, "memory_mb": [300.0, np.nan, 310.5]})
    timing.to_parquet(run.path / "timing.parquet")
    found = phases(replace(run))
    assert found.seconds.tolist() == [1.5, 4.0, 8.5]
    assert found.scalars["memory_mb"].tolist()[::2] == [300.0, 310.5]
    times = {name for name in found.scalars if name.startswith("seconds/")}
    assert times == {"seconds/collect", "seconds/learn", "seconds/evaluate", "seconds/train"}
