"""What stays of a run that has got through: its tables, and `run.json`, which says everything about it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import digest, whole, write_json
from ..simulator.loop import Simulation
from ..simulator.phase import Scores, wilson
from ..store.record import FORMAT
from ..store.stored_run import PARTS
from ..task import Task
from .job import Job

if TYPE_CHECKING:
    import pandas as pd

NO_QUANTITY = ("phase", "steps", "gradient_steps", "learning_rate")  # columns whose mean says nothing


def conclude(
    attempt: Path,
    job: Job,
    family: type[Task],
    simulation: Simulation[Any],
    scores: Scores,
    made_with: dict[str, Any],
) -> None:
    """Write the tables and `run.json` from what the logs say, earlier sittings included."""
    import pandas as pd

    spec = simulation.spec
    frame, times = pd.DataFrame(_lines(attempt / "metrics.jsonl")), _lines(attempt / "timing.jsonl")
    for name, table in (("metrics", frame), ("timing", pd.DataFrame(times))):
        with whole(attempt / f"{name}.parquet") as stream:
            table.to_parquet(stream, index=False)
    numbers = frame.select_dtypes("number").drop(columns=list(NO_QUANTITY), errors="ignore")
    seconds = {key: sum(t[key] for t in times) for key in times[0]}
    record = {
        "format": FORMAT,
        "id": job.run_id,
        "label": job.label,
        "task": family.facts(),
        "spec": spec.to_dict(),
        "method": dict(simulation.method),
        "warnings": list(simulation.warnings),
        "fingerprint": made_with,
        "metrics_sha256": digest(attempt / "metrics.jsonl"),
        "scores": summary(scores),
        "summary": {key: float(value) for key, value in numbers.mean().dropna().items()},
        "lag_histogram": _total(frame["lag_histogram"]),
        "steps": spec.phases * spec.steps_per_phase,
        "phases": spec.phases,
        "gradient_steps": simulation.gradient_steps,
        "evaluation_steps": simulation.evaluation_steps,
        "seconds": {"total": sum(seconds[part] for part in PARTS), **seconds},
        "date": datetime.date.today().isoformat(),
    }
    write_json(attempt / "run.json", record)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _total(histograms: pd.Series[Any]) -> dict[str, int]:
    """Lag in phases -> decisions of the whole run, from the counts [lags] of each phase."""
    total: dict[str, int] = {}
    for counts in histograms:
        for lag, count in enumerate(counts):
            total[str(lag)] = total.get(str(lag), 0) + int(count)
    return total


def summary(scores: Scores) -> dict[str, dict[str, Any]]:
    """Each way of scoring the final policy: mean, deviation and every episode; for answers their interval, too."""
    ways: dict[str, dict[str, Any]] = {
        way: {
            "mean": scores.mean(way),
            "std": _deviation(returns),
            "returns": returns,
            "lengths": scores.lengths[way],
        }
        for way, returns in scores.returns.items()
    }
    if scores.counts:  # of right and wrong answers
        answers = scores.returns["deterministic"]
        ways["deterministic"] |= {"wilson": wilson(int(sum(answers)), len(answers)), **scores.counts}
    return ways


def _deviation(returns: Sequence[float]) -> float:
    """Standard deviation over episodes (n − 1), 0 for a single one."""
    import pandas as pd

    return float(pd.Series(returns).std(ddof=1)) if len(returns) > 1 else 0.0
