"""Progress of a sweep on stderr: a bar per run on a terminal, plain lines anywhere else."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from collections.abc import Collection
from contextlib import AbstractContextManager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ...base.text_formatting import duration, printable
from ...errors import shorten
from ...running.plan import PlannedRun
from ...running.sweep_event_loop import SweepListener
from ...task import find_env

WIDE = 110  # columns: from this width on, everything fits
PLAIN_EVERY = 10.0  # seconds between two plain lines of the same run
STOPPING = "stopping: each run finishes its phase and writes a checkpoint (Ctrl-C again to stop at once)"
# Modules that a sweep's report needs; together they take 1.5 s to load.
REPORT_MODULES = (
    "rliable.metrics",
    "staleharness.pages.report",
    "staleharness.figures.registry",
    "staleharness.pages.figure_embedding",
    "matplotlib.backends.backend_svg",
)


def listener_for(total: int, run_ids: Collection[str]) -> AbstractContextManager[SweepListener]:
    """A live display when stderr is a terminal, plain lines otherwise; closed at the end of its context. run_ids: of
    runs that are done already."""
    return contextlib.closing((LiveDisplay if sys.stderr.isatty() else PlainLines)(total, len(run_ids)))


def describe_failure(event: dict[str, Any]) -> str:
    return f"{event.get('class', 'Error')}: {event.get('message', '')}"


def load_report_modules() -> None:
    """Load what the report needs, in the background; the report itself reports a failed import."""

    def load() -> None:
        for module in REPORT_MODULES:
            with contextlib.suppress(Exception):
                importlib.import_module(module)

    threading.Thread(target=load, name="report modules", daemon=True).start()


class PlainLines:
    """One line when a run starts, now and then while it runs, and when it ends."""

    def __init__(self, total: int, skipped: int) -> None:
        self.total, self.ended_runs, self.begin = total, skipped, time.monotonic()
        self.skipped_runs, self.any_phase = skipped, False
        self.last_line: dict[str, float] = {}
        self.started_at: dict[str, float] = {}

    def on_start(self, run: PlannedRun) -> None:
        self.last_line[run.run_id] = self.started_at[run.run_id] = time.monotonic()
        self._say(f"start  {run.text} ({run.run_id})")

    def on_preparing(self, run: PlannedRun, step: str) -> None:
        if not self.any_phase:
            self.begin = time.monotonic()  # such as a warm start, which is not repeated for the other runs
        self._now_and_then(run, step)

    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
        self.any_phase = True
        self._now_and_then(run, f"phase {progress['phase']}/{progress['phases']}{_score(run, progress)}")

    def _now_and_then(self, run: PlannedRun, progress: str) -> None:
        now = time.monotonic()
        if now - self.last_line[run.run_id] >= PLAIN_EVERY:
            self.last_line[run.run_id] = now
            self._say(f"       {run.text}: {progress}")

    def on_end(self, run: PlannedRun, event: dict[str, Any]) -> None:
        self.ended_runs += event["event"] in ("done", "failed")
        if self.total - self.ended_runs == 1:  # cores are idle
            load_report_modules()
        took = duration(time.monotonic() - self.started_at[run.run_id])
        if event["event"] == "done":
            seconds = time.monotonic() - self.begin
            left = seconds / max(1, self.ended_runs - self.skipped_runs) * (self.total - self.ended_runs)
            self._say(f"done   {run.text} in {took}; {self.ended_runs}/{self.total} runs, {duration(left)} left")
        elif event["event"] == "failed":
            self._say(f"FAILED {run.text} after {took}: {describe_failure(event)}")
        else:
            self._say(f"stop   {run.text}: {event.get('message', 'interrupted')}")

    def on_stop(self) -> None:
        self._say(STOPPING)

    def close(self) -> None:
        pass

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that is gone must not end the training
            print(printable(line), file=sys.stderr, flush=True)


class LiveDisplay:
    """A bar for the sweep and one for each run under way; ended runs leave a line."""

    def __init__(self, total: int, skipped: int) -> None:
        self.console = Console(stderr=True)
        self.wide = self.console.width >= WIDE
        clocks = [TimeElapsedColumn(), TimeRemainingColumn()] if self.wide else [TimeRemainingColumn()]
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24 if self.wide else 8),
            TextColumn("{task.percentage:>3.0f}%"),
            *clocks,
            TextColumn("[dim]{task.fields[note]}[/dim]"),
            console=self.console,
            speed_estimate_period=600,  # the phases of a large run are minutes apart
        )
        self.total_bar = self.progress.add_task("[bold]sweep[/bold]", total=total, completed=skipped, note="")
        self.bars: dict[str, TaskID] = {}
        self.share: dict[str, float] = {}
        self.ended_runs, self.total = skipped, total
        self.progress.start()

    def on_start(self, run: PlannedRun) -> None:
        self.bars[run.run_id] = self.progress.add_task(
            escape(shorten(printable(run.text), 60 if self.wide else 36)), total=run.spec.phases, note="starting"
        )

    def on_preparing(self, run: PlannedRun, step: str) -> None:
        self.progress.update(self.bars[run.run_id], note=escape(shorten(step, 60 if self.wide else 36)))

    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None:
        self.share[run.run_id] = progress["phase"] / progress["phases"]
        phase = "phase " if self.wide else ""
        note = f"{phase}{progress['phase']}/{progress['phases']}{_score(run, progress)}"
        self.progress.update(self.bars[run.run_id], completed=progress["phase"], note=escape(note))
        self._update_total()

    def on_end(self, run: PlannedRun, event: dict[str, Any]) -> None:
        self.progress.remove_task(self.bars.pop(run.run_id))
        self.share.pop(run.run_id, None)
        self.ended_runs += event["event"] in ("done", "failed")
        if self.total - self.ended_runs == 1:  # cores are idle
            load_report_modules()
        self._update_total()
        if event["event"] == "failed":
            words = escape(printable(f"{run.text}: {describe_failure(event)}"))
            self._say(f"[red]failed[/red] {words}")
        elif event["event"] == "done":
            self._say(f"[green]done[/green]   {escape(printable(run.text))}")

    def on_stop(self) -> None:
        self._say(STOPPING)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.progress.stop()

    def _say(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a terminal that is gone must not end the training
            self.console.print(line, highlight=False)

    def _update_total(self) -> None:
        note = f"{self.ended_runs}/{self.total} runs"
        self.progress.update(self.total_bar, completed=self.ended_runs + sum(self.share.values()), note=note)


def _score(run: PlannedRun, progress: dict[str, Any]) -> str:
    """Return the evaluation of the phase, if there was one, in the form usual for its kind of task."""
    task = find_env(run.spec.env)[1]
    if (value := progress.get(f"eval_{task.score}")) is None:
        return ""
    return f", {task.measures[task.score]} " + (f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3f}")
