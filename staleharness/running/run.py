"""One run from spec to published result: simulate, write each phase down, checkpoint, resume, publish."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..base.files import digest, write_json
from ..errors import Diverged, Interrupted, UserError
from ..simulator.loop import Simulation
from ..simulator.phase import Scores, wilson
from ..store.store import FORMAT, Store
from ..task import Task, find_env, simulation_of
from . import checkpoint
from .fingerprint import fingerprint, same_bits
from .job import Job

CHECKPOINT_SECONDS = float(
    os.environ.get("STALEHARNESS_CHECKPOINT_SECONDS", "30")
)  # a killed run loses about this
PATIENCE = 60.0  # seconds to wait for a worker that a killed sweep left behind


TOLD = ("lag_mean", "tv_data", "eval_sampled", "eval_deterministic", "rollout_return", "reward")


def execute(job: Job, progress: Callable[[dict[str, Any]], None], should_stop: Callable[[], bool]) -> Path:
    """Run a job to its published directory, going on from its newest intact checkpoint.

    `progress` hears of every phase; `should_stop` is asked after every phase. Raises `Interrupted` after writing a
    checkpoint when told to stop, `Diverged` when training stops being finite, and lets other errors through.
    """
    _, family = find_env(str(job.spec["env"]))
    spec = family.settings.from_dict(job.spec)
    store = Store(job.root)
    attempt = store.attempt_dir(job.run_id)
    with _only_writer(attempt):
        if store.is_done(job.run_id):  # a worker left over from a killed sweep finished it while we waited
            shutil.rmtree(attempt)
            return store.run_dir(job.run_id)
        (attempt / "failure.json").unlink(missing_ok=True)
        write_json(attempt / "job.json", {"label": job.label, "phases": spec.phases, "spec": job.spec})
        made_with = fingerprint(spec)
        simulation = simulation_of(spec, Path(job.folder))
        try:
            lengths = _resume(attempt, simulation, made_with)
            if simulation.phase == 0:
                for line in simulation.warnings:
                    print(f"warning: {line}", flush=True)
            scores = _phases(attempt, simulation, lengths, made_with, progress, should_stop)
        finally:
            simulation.close()
        _conclude(attempt, job, family, simulation, scores, made_with)
        return store.publish(job.run_id)


def _resume(attempt: Path, simulation: Simulation[Any], made_with: dict[str, Any]) -> dict[str, int]:
    """Restore the newest checkpoint and cut the logs back to it; returns their lengths in bytes."""
    lengths = {"metrics.jsonl": 0, "timing.jsonl": 0}
    state = checkpoint.load_newest(attempt)
    if state is not None:
        short = [name for name, length in state["lengths"].items() if _size(attempt / name) < length]
        if changed := same_bits(json.loads(state["fingerprint"]), made_with):
            _start_over(attempt, f"the checkpoint was made with something else: {'; '.join(changed)}")
        elif short:
            _start_over(attempt, f"{' and '.join(short)} lost lines that the checkpoint counts on")
        else:
            simulation.load_state_dict(state["simulation"])
            lengths = state["lengths"]
            print(f"resumed after phase {simulation.phase} of {simulation.spec.phases}", flush=True)
    for name, length in lengths.items():
        with open(attempt / name, "ab") as log:
            log.truncate(length)
    return lengths


def _start_over(attempt: Path, why: str) -> None:
    print(f"starting over, {why}", flush=True)
    checkpoint.clear(attempt)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _phases(
    attempt: Path,
    simulation: Simulation[Any],
    lengths: dict[str, int],
    made_with: dict[str, Any],
    progress: Callable[[dict[str, Any]], None],
    should_stop: Callable[[], bool],
) -> Scores:
    """Write every remaining phase down; returns the final scores."""
    scores: Scores | None = None
    saved = time.monotonic()
    with contextlib.ExitStack() as stack:
        logs = {name: stack.enter_context(open(attempt / name, "ab")) for name in lengths}
        for record in simulation:
            scores = record.scores or scores
            for name, line in (("metrics.jsonl", record.metrics), ("timing.jsonl", record.seconds)):
                logs[name].write(_json_line(line))
                logs[name].flush()
            last = simulation.phase == simulation.spec.phases
            progress(_progress(simulation, record.metrics))
            stop = should_stop() and not last
            if stop or (time.monotonic() - saved > CHECKPOINT_SECONDS and not last):
                lengths = {name: _on_disk(log) for name, log in logs.items()}
                state = {
                    "simulation": simulation.state_dict(),
                    "lengths": lengths,
                    "fingerprint": json.dumps(made_with),
                }
                checkpoint.save(attempt, simulation.phase, state)
                saved = time.monotonic()
            if stop:
                raise Interrupted(f"stopped after phase {simulation.phase} of {simulation.spec.phases}")
    assert scores is not None, "the last phase is always evaluated"
    return scores


def _on_disk(log: BinaryIO) -> int:
    """Length of the log in bytes, all of them on the disk before a checkpoint counts on them."""
    os.fsync(log.fileno())
    return log.tell()


def _progress(simulation: Simulation[Any], metrics: dict[str, Any]) -> dict[str, Any]:
    told = {key: metrics.get(key) for key in TOLD}
    return {"phase": simulation.phase, "phases": simulation.spec.phases, "steps": metrics["steps"], **told}


def _json_line(content: dict[str, Any]) -> bytes:
    for key, value in content.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise Diverged(f"{key} is {value} in phase {content.get('phase')}")
    return (json.dumps(content, sort_keys=True, allow_nan=False) + "\n").encode()


def _conclude(
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
    rows = [json.loads(line) for line in (attempt / "metrics.jsonl").read_text().splitlines()]
    times = [json.loads(line) for line in (attempt / "timing.jsonl").read_text().splitlines()]
    frame = pd.DataFrame(rows)
    frame.to_parquet(attempt / "metrics.parquet", index=False)
    pd.DataFrame(times).to_parquet(attempt / "timing.parquet", index=False)
    numbers = frame.select_dtypes("number").drop(
        columns=["phase", "steps", "gradient_steps", "learning_rate"]
    )
    histogram: dict[str, int] = {}
    for counts in frame["lag_histogram"]:
        for lag, count in enumerate(counts):
            histogram[str(lag)] = histogram.get(str(lag), 0) + int(count)
    seconds = {key: sum(t[key] for t in times) for key in times[0]}
    how: dict[str, dict[str, Any]] = {
        way: {
            "mean": scores.mean(way),
            "std": float(pd.Series(scores.returns[way]).std(ddof=1)) if len(scores.returns[way]) > 1 else 0.0,
            "returns": scores.returns[way],
            "lengths": scores.lengths[way],
        }
        for way in scores.returns
    }
    if scores.counts:  # of right and wrong answers
        answers = scores.returns["deterministic"]
        how["deterministic"] |= {"wilson": wilson(int(sum(answers)), len(answers)), **scores.counts}
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
        "scores": how,
        "summary": {key: float(value) for key, value in numbers.mean().dropna().items()},
        "lag_histogram": histogram,
        "steps": spec.phases * spec.steps_per_phase,
        "phases": spec.phases,
        "gradient_steps": simulation.gradient_steps,
        "evaluation_steps": simulation.evaluation_steps,
        "seconds": {"total": sum(seconds.values()), **seconds},
        "date": datetime.date.today().isoformat(),
    }
    write_json(attempt / "run.json", record)


@contextlib.contextmanager
def _only_writer(attempt: Path) -> Iterator[None]:
    """One process writes to an attempt; a worker left over from a killed sweep lets go within a phase or two."""
    deadline = time.monotonic() + PATIENCE
    while (handle := _locked(attempt)) is None:
        if time.monotonic() > deadline:
            raise UserError(f"another process is still writing to {attempt}; end it and try again")
        time.sleep(0.1)
    try:
        yield
    finally:
        os.close(handle)


def _locked(attempt: Path) -> int | None:
    """A handle that holds the attempt's lock, or None while another process has it.

    The directory may be published, that is renamed, by its holder while we wait; then what we have locked is no
    longer the attempt, which is made anew.
    """
    attempt.mkdir(parents=True, exist_ok=True)
    path = attempt / ".lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(handle)
    return None
