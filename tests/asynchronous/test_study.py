"""The study of real lag: what it fits to a trace, and how it sums up."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
from places import ROOT

from staleharness.lag import read_lag
from staleharness.store.stored_run import StoredRun
from staleharness.trace import written


@pytest.fixture(scope="module")
def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("real_lag", ROOT / "experiments" / "real_lag.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules["real_lag"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pipeline_has_the_times_of_the_trace_in_training_steps(study: ModuleType, tmp_path: Path) -> None:
    """Steps of two seconds; groups that take one second or three, four of them a batch, of two rows each."""
    lines = [(phase, place) for phase in range(5) for place in range(4) for _ in range(2)]
    took = [1.0 if place % 2 else 3.0 for _, place in lines]
    rows = pd.DataFrame([
        {
            "row": i, "group": i // 2, "actor": place, "nth": phase, "fate": "trained", "phase": phase, "place": place,
            "versions": [phase], "ends": [8], "began_at": 2.0 * phase, "made_at": 2.0 * phase + took[i],
            "queued_at": 2.0 * phase + took[i], "trained_at": 2.0 * phase,
        }
        for i, (phase, place) in enumerate(lines)
    ])  # fmt: skip
    path = tmp_path / "t.parquet"
    path.write_bytes(written(rows, {"source": "actors", "decisions": 8, "fetch": 0}))
    model: Any = read_lag(study.fitted(study.Cell("Hopper", "spo", "a few slow", 0), path))
    assert (model.capacity, model.max_lag, model.slots) == (2.0, 15, 2.0)
    assert model.row_time == pytest.approx(1.0)
    assert model.cv == pytest.approx(np.std([1, 3] * 10, ddof=1) / 2, abs=1e-3)


def test_lags_and_scores_stand_side_by_side(study: ModuleType, tmp_path: Path) -> None:
    def stored(score: float, lags: dict[str, int]) -> StoredRun:
        return StoredRun(tmp_path, {"scores": {"sampled": {"mean": score}}, "lag_histogram": lags}, "")

    found = {}
    for seed, score in enumerate((1.0, 3.0)):
        for load in study.LOADS:
            cell = study.Cell("Hopper", "spo", load, seed)
            for i, way in enumerate(study.WAYS):
                found[cell, way] = stored(score + i, {"0": 1, str(1 + seed): 3})
    summary = study.summarised(found)
    assert [row["way"] for row in summary[:4]] == list(study.WAYS) and len(summary) == 4 * len(study.LOADS)
    first = summary[0]
    assert first["score"] == 2.0 and first["mean_lag"] == pytest.approx((0.75 + 1.5) / 2)
    assert first["histogram"] == pytest.approx([0.25, 0.375, 0.375])
    assert first["interval"] == [1.0, 3.0]
    study.draw(summary, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
