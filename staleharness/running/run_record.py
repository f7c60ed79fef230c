"""Record of a completed run: its tables, and `run.json` with the fingerprint of the software and hardware it ran on."""

from __future__ import annotations

import datetime
import functools
import hashlib
import json
import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import __version__
from ..base.console_log import LOGGER
from ..base.files import atomic_write, write_json
from ..base.options import values_before
from ..base.system_info import LIBRARIES, commit, cpu_model, overrides, package_version, peak_memory
from ..errors import Diverged, UserError, shorten
from ..spec import MATHS_VERSION, RunSpec
from ..store.record_schema import FORMAT, MAX_TEXT, parse_record, record_problem
from ..store.stored_run import MEMORY, PARTS
from ..task import Task
from ..training import checkpoint
from ..training.lag_and_sample_totals import ACCOUNTS, TOTALS
from ..training.lag_stats import add_histograms
from ..training.loop import Simulation
from ..training.phase_record import Scores, wilson
from .memory_leak_warning import growth_warnings
from .runner_interface import Job

if TYPE_CHECKING:
    import pandas as pd

WITHOUT_MEAN = ("phase", "steps", "gradient_steps", "learning_rate")  # columns whose mean over phases is meaningless


def write_record(
    attempt: Path,
    job: Job,
    family: type[Task],
    simulation: Simulation[Any],
    scores: Scores,
    fingerprint: dict[str, Any],
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
    seconds = {key: sum(t[key] for t in times) for key in times[0] if key != MEMORY}
    leaks = growth_warnings([t.get(MEMORY) for t in times], spec.capacity)
    for line in leaks:
        LOGGER.warning("warning: %s", line)
    # without the accounts, which runs of earlier versions lack
    comparable = [{key: v for key, v in line.items() if not key.startswith(ACCOUNTS)} for line in lines]
    record = {
        "format": FORMAT,
        "id": job.run_id,
        "label": job.label,
        "task": family.facts(scores.returns),
        "before": spec.before() | ({"hyper": options} if (options := values_before(simulation.algorithm)) else {}),
        "spec": spec.to_dict(),
        "method": dict(simulation.method),
        "warnings": [shorten(line, MAX_TEXT) for line in [*simulation.warnings, *leaks]],
        "fingerprint": fingerprint,
        "metrics_sha256": hashlib.sha256(b"".join(map(json_line, comparable))).hexdigest(),
        "scores": summary(scores),
        **means_and_lags(frame, spec.fill_phases),
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
    if problem := record_problem(parse_record(text), job.run_id, parse_record(job_text)):
        raise UserError(f"the kind of task {family.kind!r} made a record that cannot be stored: {problem}")
    write_json(attempt / "run.json", record)


def means_and_lags(frame: pd.DataFrame, fill_phases: int) -> dict[str, dict[str, Any]]:
    """Derive from metrics the parts of a record that follow: means over the phases of the budget, counts of lags."""
    import pandas as pd

    budget = frame[frame["phase"] >= fill_phases]
    before_training = frame.filter(like="untrained/")  # in the first phase
    values = pd.concat([budget.drop(columns=before_training.columns), before_training], axis=1)
    numbers = values.select_dtypes("number").drop(columns=list(WITHOUT_MEAN), errors="ignore")
    numbers = numbers[[name for name in numbers if not name.startswith(TOTALS)]]
    lag_counts: list[int] = functools.reduce(add_histograms, map(list, budget["lag_histogram"]), [])
    return {
        "summary": {key: float(value) for key, value in numbers.mean().dropna().items()},
        "lag_histogram": {str(lag): int(count) for lag, count in enumerate(lag_counts)},
    }


def json_line(content: Mapping[str, Any]) -> bytes:
    """Return a phase as a line of a log. Raises `Diverged` if a number of it is not finite."""
    for key, value in content.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Diverged(f"{key} is {value} in phase {content.get('phase')}")
    return (json.dumps(content, sort_keys=True, allow_nan=False) + "\n").encode()


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


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


@functools.cache
def software() -> dict[str, str | None]:
    """Commit and versions of what this process has loaded. Asking git and the metadata of each package takes a tenth of
    a second, and more in a checkout with changes, so it is done once per process, and runs inherit the result from
    their fork server."""
    versions = {name: package_version(name) for name in LIBRARIES}
    return {"commit": commit(), "python": platform.python_version(), **versions}


def fingerprint(spec: RunSpec) -> dict[str, Any]:
    """Return versions, hardware, threads and commit; bits are promised only for equal fingerprints."""
    return {
        "staleharness": __version__,
        "maths": MATHS_VERSION,
        **software(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "threads": spec.threads,
        "device": spec.device,
        **overrides(),
        **spec.toolchain(),
    }


def fingerprint_differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """List differences between two fingerprints that could change bits, as lines `name: a -> b`.

    Another version of staleharness does not count: what changes results raises `MATHS_VERSION` or changes the run's id.
    """
    relevant = sorted((set(a) | set(b)) - {"commit", "staleharness", "pandas", "pyarrow"})
    return [f"{key}: {a.get(key)} -> {b.get(key)}" for key in relevant if a.get(key) != b.get(key)]
