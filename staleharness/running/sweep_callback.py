"""Sweeps that a script starts: its callback, and the error for runs that did not finish."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..statistics.results import Results
    from .plan import PlannedRun

ProgressCallback = Callable[[dict[str, Any]], None]


class RunsFailed(RuntimeError):
    """Some runs of a sweep did not finish; all others did and are stored.

    failed: id of a run -> {class, message, log_tail}. results: the runs that finished.
    """

    def __init__(self, message: str, failed: Mapping[str, Mapping[str, Any]], results: Results) -> None:
        super().__init__(message)
        self.failed, self.results = dict(failed), results


def failure_text(missing: Sequence[PlannedRun], failed: Mapping[str, Mapping[str, Any]]) -> str:
    from .plan_execution import describe_run

    lost = {"class": "Damaged", "message": "the run ended, and cannot be read back"}
    events = [(run, failed.get(run.run_id, lost)) for run in missing]
    lines = [f"{describe_run(run)}: {event['class']}: {event['message']}" for run, event in events]
    return "; ".join([f"{len(missing)} of the runs failed, the others are stored", *lines])


class CallbackListener:
    """Listener of a sweep that calls a function with each event as plain data."""

    def __init__(self, progress: ProgressCallback | None) -> None:
        self.progress = progress

    def on_start(self, run: PlannedRun) -> None:
        self._call(run, {"event": "started"})

    def on_preparing(self, run: PlannedRun, step: str) -> None:
        self._call(run, {"event": "preparing", "what": step})

    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
        self._call(run, {"event": "phase", **progress})

    def on_end(self, run: PlannedRun, event: dict[str, Any]) -> None:
        interrupted = event["event"] == "interrupted"
        self._call(run, {**event, "event": "stopped"} if interrupted else event)

    def on_stop(self) -> None:
        """Do nothing: each run reports its own stop."""

    def _call(self, run: PlannedRun, event: Mapping[str, Any]) -> None:
        if self.progress is not None:
            spec = run.spec
            cell = {"id": run.run_id, "algorithm": run.label, "env": spec.env, "capacity": spec.capacity}
            self.progress({**cell, "seed": spec.seed, **event})
