"""Record of a completed run: its tables and `run.json`, with a warning if memory grew from phase to phase."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.console_log import LOGGER
from ..base.files import atomic_write, write_json
from ..base.machine import peak_memory
from ..errors import Diverged, UserError, shorten
from ..store.record_schema import FORMAT, MAX_TEXT, parse_record, record_problem
from ..store.stored_run import MEMORY, PARTS
from ..task import Task
from ..training import checkpoint
from ..training.lag_accounts import ACCOUNTS, TOTALS
from ..training.loop import Simulation
from ..training.phase_record import Scores, wilson
from .runner_interface import Job

if TYPE_CHECKING:
    import pandas as pd
import itertools

import numpy as np

NO_QUANTITY = ("phase", "steps", "gradient_steps", "learning_rate")  # columns whose mean is meaningless


def write_record(
    attempt: Path, job: Job, family: type[Task], simulation: Simulation[Any], scores: Scores, made_with: dict[str, Any]
) -> None:
    """Write the tables and `run.json` from the logs, which include phases before an interruption. Raises `UserError`
    for a record that readers of results would refuse."""
    import pandas as pd

    spec = simulation.spec
    lines, times = (_lines(attempt / f"{name}.jsonl") for name in ("metrics", "timing"))
    frame = pd.DataFrame(lines)
    for name, table in (("metrics", frame), ("timing", pd.DataFrame(times))):
        with atomic_write(attempt / f"{name}.parquet") as stream:
            table.to_parquet(stream, index=False)
    budget = frame[frame["phase"] >= spec.fill_phases]
    begin = frame.filter(like="untrained/")  # of the first phase, before any training
    values = pd.concat([budget.drop(columns=begin.columns), begin], axis=1)
    numbers = values.select_dtypes("number").drop(columns=list(NO_QUANTITY), errors="ignore")
    numbers = numbers[[name for name in numbers if not name.startswith(TOTALS)]]
    seconds = {key: sum(t[key] for t in times) for key in times[0] if key != MEMORY}
    leaks = growth_warnings([t.get(MEMORY) for t in times], spec.capacity)
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
        "warnings": [shorten(line, MAX_TEXT) for line in [*simulation.warnings, *leaks]],
        "fingerprint": made_with,
        "metrics_sha256": _checksum(lines),
        "scores": summary(scores),
        "summary": {key: float(value) for key, value in numbers.mean().dropna().items()},
        "lag_histogram": _total(budget["lag_histogram"]),
        **simulation.accounts.record(),
        "promise": simulation.lags.expected and simulation.lags.expected._asdict(),
        **({"pipeline_ledger": simulation.lags.schedule.ledger} if simulation.lags.schedule else {}),
        "steps": spec.budget_phases * spec.steps_per_phase,
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


def json_line(content: Mapping[str, Any]) -> bytes:
    """Return a phase as a line of a log. Raises `Diverged` if a number of it is not finite."""
    for key, value in content.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Diverged(f"{key} is {value} in phase {content.get('phase')}")
    return (json.dumps(content, sort_keys=True, allow_nan=False) + "\n").encode()


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _checksum(lines: Sequence[dict[str, Any]]) -> str:
    """Hash the metrics except the accounts, which runs of earlier versions lack."""
    parts = [{key: v for key, v in line.items() if not key.startswith(ACCOUNTS)} for line in lines]
    return hashlib.sha256(b"".join(map(json_line, parts))).hexdigest()


def _total(histograms: pd.Series[Any]) -> dict[str, int]:
    """Map lags in phases to decisions, from the counts [lags] of each phase."""
    total: dict[str, int] = {}
    for counts in histograms:
        for lag, count in enumerate(counts):
            total[str(lag)] = total.get(str(lag), 0) + int(count)
    return total


def summary(scores: Scores) -> dict[str, dict[str, Any]]:
    """Return mean, deviation and every episode of each evaluation mode; for right and wrong answers an interval too."""
    modes: dict[str, dict[str, Any]] = {
        mode: {"mean": scores.mean(mode), "std": _deviation(r), "returns": r, "lengths": scores.lengths[mode]}
        for mode, r in scores.returns.items()
    }
    if scores.counts:  # of right and wrong answers
        correct = scores.returns["deterministic"]
        modes["deterministic"] |= {"wilson": wilson(int(sum(correct)), len(correct)), **scores.counts}
    return modes


def _deviation(returns: Sequence[float]) -> float:
    """Return the standard deviation over episodes (n − 1), 0 for a single one."""
    import pandas as pd

    return float(pd.Series(returns).std(ddof=1)) if len(returns) > 1 else 0.0


# The rule for growing memory. The longest stretch of phases in one process, once the policy buffer is full, is halved;
# its second half is cut into parts, each with its median [MB]. Memory grows if most changes between parts are upwards,
# the last among them, and the Theil-Sen line through the medians rises by enough over the half. One jump, a level that
# swings, and growth that stops do not count.
PHASES = 20  # in the half, at least
TENTHS = 10  # parts of the half
UPWARDS = 8  # of the nine changes between parts, at least
MEGABYTES, SHARE = 100.0, 0.1  # of growth over the half, at least: absolute, and of the first median
FRESH = 0.8  # times the memory before: a lower value is a new process, which resumed from a checkpoint
GROWS = (
    "memory grew steadily, by about {:g} MB a phase (memory_mb in timing.parquet): something, perhaps an "
    "environment, holds on to what it no longer needs"
)


def in_megabytes(memory: int | None) -> float | None:
    """Convert bytes to MB, rounded to a tenth; None for None."""
    return None if memory is None else round(memory / 1e6, 1)


def growth_warnings(memory: Sequence[float | None], capacity: int) -> list[str]:
    """Return the warning if memory [MB], one number per phase (None: not measured), grows steadily; otherwise nothing.
    capacity: versions in the policy buffer, which fills meanwhile."""
    slope = steady_growth(memory, capacity)
    return [] if slope is None else [GROWS.format(float(f"{slope:.1g}"))]


def steady_growth(memory: Sequence[float | None], capacity: int) -> float | None:
    """Return the growth in MB per phase if memory [MB] grows steadily, otherwise None."""
    stretch = max(_stretches(memory, capacity), key=len)
    half = np.array(stretch[len(stretch) // 2 :])
    if len(half) < PHASES:
        return None
    parts = np.array_split(np.arange(len(half)), TENTHS)
    level = np.array([np.median(half[part]) for part in parts])
    centre = np.array([part.mean() for part in parts])
    changes = np.diff(level)
    pairs = itertools.combinations(range(TENTHS), 2)
    slope = float(np.median([(level[j] - level[i]) / (centre[j] - centre[i]) for i, j in pairs]))
    steady = changes[-1] > 0 and int((changes > 0).sum()) >= UPWARDS
    growth = slope * (len(half) - 1)
    return slope if steady and growth > max(MEGABYTES, SHARE * level[0]) else None


def _stretches(memory: Sequence[float | None], capacity: int) -> list[list[float]]:
    """Split the memory of phases by process, from when the buffer is full; at least one part, which may be empty."""
    stretches: list[list[float]] = [[]]
    for value in memory[capacity:]:
        current = stretches[-1]
        if value is None or (current and value < FRESH * current[-1]):
            stretches.append([])
        if value is not None:
            stretches[-1].append(value)
    return stretches
