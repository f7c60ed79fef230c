"""What stays of a run that has got through: its tables, and `run.json`, which says everything about it."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import atomic_write, write_json
from ..base.logger import LOGGER
from ..base.machine import peak_memory
from ..errors import UserError, shorten
from ..simulator import checkpoint
from ..simulator.accounts import ACCOUNTS, TOTALS
from ..simulator.loop import Simulation
from ..simulator.phase_record import Scores, wilson
from ..store.record_schema import FORMAT, MOST_TEXT, parse_record, record_problem
from ..store.stored_run import MEMORY, PARTS
from ..task import Task
from .attempt import json_line
from .growth import warnings_of
from .job import Job

if TYPE_CHECKING:
    import pandas as pd

NO_QUANTITY = ("phase", "steps", "gradient_steps", "learning_rate")  # columns whose mean says nothing


def conclude(
    attempt: Path, job: Job, family: type[Task], simulation: Simulation[Any], scores: Scores, made_with: dict[str, Any]
) -> None:
    """Write the tables and `run.json` from what the logs say, earlier sittings included. Raises `UserError` for a
    record that readers of results would refuse."""
    import pandas as pd

    spec = simulation.spec
    lines, times = (_lines(attempt / f"{name}.jsonl") for name in ("metrics", "timing"))
    frame = pd.DataFrame(lines)
    for name, table in (("metrics", frame), ("timing", pd.DataFrame(times))):
        with atomic_write(attempt / f"{name}.parquet") as stream:
            table.to_parquet(stream, index=False)
    numbers = frame.select_dtypes("number").drop(columns=list(NO_QUANTITY), errors="ignore")
    numbers = numbers[[name for name in numbers if not name.startswith(TOTALS)]]
    seconds = {key: sum(t[key] for t in times) for key in times[0] if key != MEMORY}
    leaks = warnings_of([t.get(MEMORY) for t in times], spec.capacity)
    for line in leaks:
        LOGGER.warning("warning: %s", line)
    record = {
        "format": FORMAT,
        "id": job.run_id,
        "label": job.label,
        "task": family.facts(scores.returns),
        "before": spec.before(),
        "spec": spec.to_dict(),
        "method": dict(simulation.method),
        "warnings": [shorten(line, MOST_TEXT) for line in [*simulation.warnings, *leaks]],
        "fingerprint": made_with,
        "metrics_sha256": _checksum(lines),
        "scores": summary(scores),
        "summary": {key: float(value) for key, value in numbers.mean().dropna().items()},
        "lag_histogram": _total(frame["lag_histogram"]),
        **simulation.accounts.record(),
        "promise": simulation.lags.expected and simulation.lags.expected._asdict(),
        **({"pipeline_ledger": simulation.lags.schedule.ledger} if simulation.lags.schedule else {}),
        "steps": spec.phases * spec.steps_per_phase,
        "phases": spec.phases,
        "gradient_steps": simulation.gradient_steps,
        "evaluation_steps": simulation.evaluation_steps,
        "seconds": {"total": sum(seconds[part] for part in PARTS), **seconds},
        "peak_memory": peak_memory(),
        "checkpoint_bytes": checkpoint.size(attempt),
        "date": datetime.date.today().isoformat(),
    }
    text = json.dumps(record, allow_nan=False)
    job_text = (attempt / "job.json").read_bytes()
    if wrong := record_problem(parse_record(text), job.run_id, parse_record(job_text)):
        raise UserError(f"what the kind of task {family.kind!r} says of a run cannot be stored: {wrong}")
    write_json(attempt / "run.json", record)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _checksum(lines: Sequence[dict[str, Any]]) -> str:
    """Of the metrics but the accounts: a run made again has the checksum of one that was made before there were any."""
    kept = [{key: v for key, v in line.items() if not key.startswith(ACCOUNTS)} for line in lines]
    return hashlib.sha256(b"".join(map(json_line, kept))).hexdigest()


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
        way: {"mean": scores.mean(way), "std": _deviation(returns), "returns": returns, "lengths": scores.lengths[way]}
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
