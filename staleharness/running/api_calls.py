"""Functions for notebooks: arguments checked and turned into what is typed, callback of a sweep, error of its runs, and
a run in the caller's own process, phase by phase, with the bits of a worker's."""

from __future__ import annotations

import contextlib
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from ..base.files import user_path
from ..base.parsing import is_empty, plain_value, split_list, whole_numbers
from ..base.plugins import add_user_path
from ..errors import UserError, shorten
from ..study import Question, ask
from .hardware import make_deterministic

if TYPE_CHECKING:
    from ..spec import RunSpec
    from ..statistics.results import Results
    from ..training.phase_record import PhaseRecord
    from .plan import PlannedRun


def refuse_empty(**arguments: Any) -> None:
    """Raise `UserError` for an empty text, which means neither the default nor all nor none."""
    for name, value in arguments.items():
        if isinstance(value, str) and is_empty(value):
            raise UserError(f"{name}={value!r} is empty; give a value, or leave it out for the default")


def check_folder(name: str, value: Any) -> None:
    """Raise `UserError` for a value that is not a path."""
    refuse_empty(**{name: value})
    if not isinstance(value, (str, PathLike)):
        raise UserError(f"{name}={shorten(repr(value))} is not a folder; give a path, such as 'results'")


def text_of(value: Any) -> str | None:
    """Argument as typed on the command line."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return ",".join(map(str, value)) if isinstance(value, Iterable) else str(value)


def seed_list(values: Iterable[int]) -> list[int]:
    try:
        seeds = [operator.index(seed) for seed in values]
    except TypeError:  # not iterable, or not of whole numbers
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UserError(
            f"SEEDS={shorten(repr(seeds or values))} is neither a whole number, how many seeds, nor a list of "
            "different ones, none of them negative"
        )
    return seeds


def question_of(
    *, seeds: Any, settings: Any, scale: Any, spec: Any, steps: Any, model: Any, data: Any, device: Any, **axes: Any
) -> tuple[Question, list[int] | None]:
    """Return the question that the arguments of `plan` ask, and its seeds where they are listed. Raises `UserError`."""
    scalars = {"steps": text_of(steps), "model": text_of(model), "data": text_of(data), "device": text_of(device)}
    if isinstance(seeds, str) and ("," in seeds or len(seeds.split()) > 1):
        seeds = whole_numbers(seeds, "SEEDS")
    seed_numbers = None if seeds is None or isinstance(seeds, (int, Integral, str)) else seed_list(seeds)
    named_settings = settings if isinstance(settings, Mapping) else {}
    if not isinstance(settings, (str, Mapping, NoneType)) or not all(isinstance(key, str) for key in named_settings):
        raise UserError(f"SET={shorten(repr(settings))} is neither settings by name nor 'name=value,...'")
    question = ask(
        **{name: text_of(value) for name, value in axes.items()},
        **scalars,
        seeds=text_of(seeds) if seed_numbers is None else None,
        spec_file=text_of(spec),
        scale=str(scale),
        settings=settings if isinstance(settings, str) else None,
    )
    others = {key: plain_value(value) for key, value in named_settings.items() if scalars.get(key) is None}
    return replace(question, settings={**question.settings, **others}), seed_numbers


def load_plugins(plugin: str | Path | Iterable[str | Path] | None) -> None:
    """Make the plugins of files or folders known to this process and its workers. Raises `UserError`."""
    if plugin is None:
        return
    refuse_empty(plugin=plugin)
    if isinstance(plugin, str):
        is_path = user_path(plugin).exists()  # a path may have commas, spaces and brackets in it
        plugin = [plugin] if is_path else split_list(plugin)
    for path in plugin if isinstance(plugin, Iterable) else [plugin]:
        add_user_path(str(path))


ProgressCallback = Callable[[dict[str, Any]], None]


class RunsFailed(RuntimeError):
    """Error of a sweep in which some runs did not finish; all others did and are stored.

    failed: id of a run -> {class, message, log_tail}. results: the runs that finished.
    """

    def __init__(self, message: str, failed: Mapping[str, Mapping[str, Any]], results: Results) -> None:
        super().__init__(message)
        self.failed, self.results = dict(failed), results


def failure_text(missing: Sequence[PlannedRun], failed: Mapping[str, Mapping[str, Any]]) -> str:
    from .plan_execution import describe_run

    unreadable = {"class": "Damaged", "message": "the run ended, and cannot be read back"}
    events = [(run, failed.get(run.run_id, unreadable)) for run in missing]
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


TURN = threading.RLock()  # held while the settings of the process are changed


def phases(spec: RunSpec) -> Iterator[PhaseRecord]:
    """Yield the records of the run's phases; nothing is written. Runs in several threads take turns, a phase at a time,
    because the settings that a phase depends on belong to the process."""
    from ..training.loop import simulation_of

    with _as_in_a_worker(spec):
        simulation = simulation_of(spec)
        records = iter(simulation)
    try:
        while True:
            with _as_in_a_worker(spec):
                record = next(records, None)
            if record is None:
                return
            yield record
    finally:
        simulation.close()


@contextlib.contextmanager
def _as_in_a_worker(spec: RunSpec) -> Iterator[None]:
    """Set up torch as in a worker, since bits depend on it; restore the caller's settings and the states of its global
    random generators afterwards."""
    import torch

    from ..base.streams import global_generators_restored

    with TURN, global_generators_restored():
        threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
        cudnn_sdp = torch.backends.cuda.cudnn_sdp_enabled()
        make_deterministic(spec.threads)
        try:
            yield
        finally:
            torch.backends.cuda.enable_cudnn_sdp(cudnn_sdp)
            torch.set_deterministic_debug_mode(mode)
            torch.set_num_threads(threads)
