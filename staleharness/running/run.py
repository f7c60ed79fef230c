"""One run from spec to published result: simulate, write each phase down, checkpoint, resume, publish."""

from __future__ import annotations

import contextlib
import functools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..base.files import remove_temporaries, write_bytes, write_json
from ..base.logger import LOGGER
from ..base.machine import resident_memory
from ..errors import Interrupted, UserError
from ..simulator import checkpoint
from ..simulator.loop import Simulation, simulation_of
from ..simulator.phase_record import PhaseRecord, Scores
from ..store.store import Store
from ..store.stored_run import MEMORY, PARTS
from ..store.unfinished_runs import CHECKPOINTS, FINGERPRINT, RUN_FILES
from ..task import find_env
from .attempt import Logs, only_writer, opened, resume
from .hardware import fingerprint
from .run_record import in_megabytes, write_record
from .runner import NOTE, Job
from .takeover import holding, take_over

Progress = Callable[[dict[str, Any]], None]
TOLD = ("lag_mean", "tv_data", "eval_sampled", "eval_deterministic", "rollout_return", "reward")


def execute(job: Job, progress: Progress, should_stop: Callable[[], bool]) -> Path:
    """Run a job to its published directory, going on from its newest intact checkpoint.

    `progress` hears of every phase, and of what the user should know ({NOTE: line}); `should_stop` is asked after every
    phase but the last. Raises `Interrupted` after writing a checkpoint when told to stop, `UserError` where there are
    checkpoints and none fits, `Diverged` when training stops being finite, and lets other errors through.
    """
    _, family = find_env(str(job.spec["env"]))
    spec = family.settings.from_dict(job.spec)
    store = Store(job.root, job.holder)
    attempt = store.attempt_dir(job.run_id)
    with holding(store, job.run_id) if job.holder else only_writer(attempt) as lease:
        remove_temporaries(attempt, *RUN_FILES, CHECKPOINTS)
        take_over(store, job.run_id)
        if store.is_done(job.run_id):  # a worker left over from a killed sweep finished it while we waited
            shutil.rmtree(attempt)
            return store.run_dir(job.run_id)
        if store.is_sealed(job.run_id):  # all that was missing is its place
            return store.publish(job.run_id)
        for name in ("failure.json", "manifest.json"):
            (attempt / name).unlink(missing_ok=True)
        write_json(attempt / "job.json", {"label": job.label, "phases": spec.phases, "spec": job.spec})
        made_with = fingerprint(spec)

        def say(line: str) -> None:
            LOGGER.warning(line)
            progress({NOTE: line})

        make = functools.partial(simulation_of, spec, Path(job.folder))
        with contextlib.closing(resume(attempt, job.run_id, make, made_with, job.restart, say)) as simulation:
            write_json(attempt / FINGERPRINT, made_with)
            if simulation.phase == 0:
                for line in simulation.warnings:
                    LOGGER.warning("warning: %s", line)
            with opened(attempt, job.run_id) as logs:
                save = functools.partial(logs.checkpoint, simulation, made_with)
                asked = (lambda: should_stop() or lease.lost) if lease else should_stop
                scores = _phases(simulation, logs, save, job.checkpoint_seconds, progress, asked)
            for name, content in simulation.artifacts().items():
                write_bytes(attempt / name, content)
        write_record(attempt, job, family, simulation, scores, made_with)
        return store.publish(job.run_id)


def _phases(
    simulation: Simulation[Any],
    logs: Logs,
    save: Callable[[], None],
    every: float,
    progress: Progress,
    should_stop: Callable[[], bool],
) -> Scores:
    """Write every remaining phase down, with a checkpoint every so many seconds (fewer where they take long) and one
    before the last evaluation; returns the final scores."""
    scores: Scores | None = None
    last = simulation.spec.phases

    def before_evaluation() -> None:
        """However long scores and tables take, a run that is killed meanwhile does not train its last phase again."""
        if simulation.phase == last:
            save()

    simulation.before_evaluation = before_evaluation
    now = time.monotonic()
    due = now + every
    try:
        for record in simulation:
            _check(record)
            scores = record.scores or scores
            logs.write(record.metrics, {**record.seconds, MEMORY: in_megabytes(resident_memory())})
            progress(_progress(simulation, record.metrics))
            if simulation.phase == last:
                break
            if should_stop():
                save()
                raise Interrupted(f"stopped after phase {simulation.phase} of {last}")
            if (now := time.monotonic()) > due:
                save()
                due = checkpoint.next_due(now, time.monotonic(), every)
    except Interrupted:
        if simulation.trained is not None:  # within an evaluation, which is all that is left of the phase
            save()
        raise
    assert scores is not None, "the last phase is always evaluated"
    return scores


def _check(record: PhaseRecord) -> None:
    """Raise `UserError` where a kind of task leaves out what every reader of results counts on."""
    curves = [f"eval_{way}" for way in record.scores.returns] if record.scores else []
    needed = {"metrics": ["phase", "steps", "lag_histogram", *curves], "seconds": [*PARTS]}
    for part, names in needed.items():
        if absent := [name for name in names if name not in getattr(record, part)]:
            raise UserError(f"the simulation's {part} of a phase lack {', '.join(absent)}")


def _progress(simulation: Simulation[Any], metrics: dict[str, Any]) -> dict[str, Any]:
    told = {key: metrics.get(key) for key in TOLD}
    return {"phase": simulation.phase, "phases": simulation.spec.phases, "steps": metrics["steps"], **told}
