"""Runs of the study as one table: a row per run, from its folders or from the bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from design import ON_POLICY, Cell
from fit_lag_models import histogram, mean_lag

from staleharness.running.run_record import fingerprint_differences
from staleharness.store.stored_run import StoredRun


def table(study_runs: Mapping[str, StoredRun], cells: Sequence[Cell]) -> pd.DataFrame:
    """Columns task, method, load, seed, way, `row`'s, `bits`: whether the run is the recorded one, bit for bit, and
    `alike`: whether it was made on the same kind of machine, without which bits are not promised. A run without lag
    has no load and its own seed; all others have the seed of the recorded run."""
    frame = pd.DataFrame(list(_rows(study_runs, cells)))
    place = ["task", "method", "load", "seed", "way"]
    return frame.drop_duplicates(place, ignore_index=True) if len(frame) else frame


def _rows(study_runs: Mapping[str, StoredRun], cells: Sequence[Cell]) -> Iterator[dict[str, Any]]:
    for cell in cells:
        place = {"task": cell.task.env, "method": cell.method, "seed": cell.seed}
        for planned in cell.on_policy():
            if (run := study_runs.get(planned.run_id)) is not None:
                without = {"load": "", "seed": run.seed, "way": ON_POLICY, "bits": False, "alike": False}
                yield place | without | row(run, cell)
        if (real := study_runs.get(cell.recording().run_id)) is None:
            continue
        ids = {"recorded": real.id} | {way: request.run_id for way, request in cell.reruns(real).items()}
        for way, run_id in ids.items():
            if (run := study_runs.get(run_id)) is not None:
                bits = run.record["metrics_sha256"] == real.record["metrics_sha256"]
                alike = not fingerprint_differences(run.record["fingerprint"], real.record["fingerprint"])
                yield place | {"load": cell.load, "way": way, "bits": bits, "alike": alike} | row(run, cell)


def row(run: StoredRun, cell: Cell) -> dict[str, Any]:
    """score: of the final policy. area: mean of the evaluations along the way. untrained: before any of them. filtered:
    share of the minibatches in which a method's filter acts; NaN where it has none."""
    curve = run.column(f"eval_{cell.task.score}")
    untrained = run.column(f"untrained/{cell.task.score}")
    assert curve is not None and untrained is not None
    filtered = run.column("algorithm/filter_active")
    return {
        "score": float(run.record["scores"][cell.task.score]["mean"]),
        "area": float(np.nanmean(curve)),
        "untrained": float(untrained[0]),
        "filtered": np.nan if filtered is None else float(np.nanmean(filtered)),
        "mean_lag": mean_lag(run),
        "lags": histogram(run),
        "capacity": int(run.record["spec"]["capacity"]),
        "id": run.id,
    }
