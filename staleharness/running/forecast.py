"""Forecast of a sweep before it starts: time, memory and disk, from similar runs or a short probe, and its lag."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..algorithm import make_algorithm
from ..base.console_log import LOGGER
from ..base.files import stamp
from ..base.text_formatting import duration, megabytes, number, plural
from ..errors import UserError, type_and_message
from ..lag import read_lag
from ..mismatch import NONE
from ..spec import RunSpec
from ..statistics.table_notes import SHORT_LAG
from ..store.store import Store
from ..store.stored_run import StoredRun
from ..store.study_runs import published_bundles
from ..training.checkpoint import MAX_FILES
from ..training.method_descriptions import idle_correction, mismatch_warning
from ..training.version_assignment import WIDEST, expected_lag
from .plan import Plan, PlannedRun

BYTES_PER_PHASE = 2_500  # metrics as lines and as a table
BYTES_PER_RUN = 40_000
PUBLISHED = "published"
FAST = 0.2  # quantile of the seconds per step of published runs: many of them shared their machine with other work
IDLE_SETTINGS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (  # of control, and where they have no effect
    (
        "envs_per_actor",
        lambda spec: read_lag(spec.lag).drawn,
        "under LAG={0.lag}, which draws a version for each environment",
    ),
    ("warm_epochs", lambda spec: not spec.warm_phases, "with warm_phases=0"),
    ("behaviour", lambda spec: spec.mismatch == NONE, "without MISMATCH, as the version itself samples"),
)


@dataclass(frozen=True)
class Estimate:
    """Expected time and disk space of the runs of a plan."""

    seconds: float | None  # None: unknown
    bytes: int
    source: str  # of the speed
    checkpoints: int = 0  # bytes of those kept at a time, at most; 0: unknown

    @property
    def text(self) -> str:
        if self.seconds is None:
            return f"{self.disk}; no estimate of the time: {self.source}"
        if not self.seconds:
            return "nothing to do: every run is stored"
        return f"about {duration(self.seconds)} ({self.source}) and {self.disk}"

    @property
    def disk(self) -> str:
        meanwhile = f", plus up to {megabytes(self.checkpoints)} of checkpoints until then"
        return f"{megabytes(self.bytes)} of disk" + meanwhile * (self.checkpoints > self.bytes)


def estimate(missing: Sequence[PlannedRun], store: Store, jobs: int, probe: bool | None = None) -> Estimate:
    """Estimate the wall time of the missing runs, `jobs` at a time, and their disk space. Speeds are those of similar
    runs in `store`, otherwise in published bundles, otherwise (with `probe`) of a short run here. probe: None where the
    command has no such option."""
    seconds, sources, probes = 0.0, dict[str, set[str]](), 0
    space, checkpoint = sum(disk_bytes(run.spec.phases) for run in missing), 0
    speeds: dict[Any, tuple[float, float] | None] = {}  # training steps per second, and seconds of evaluations
    for run in missing:
        env = run.spec.env
        kind = (env, getattr(run.spec, "learner", None), run.spec.capacity)
        if kind not in speeds:
            similar = similar_runs(run.spec, store)
            speeds[kind] = (similar.speed, similar.evaluation) if similar else None
            if similar:
                sources.setdefault(similar.where, set()).update(similar.ids)  # two kinds may rest on the same runs
                checkpoint = max(checkpoint, similar.checkpoint)
        if (speed := speeds[kind]) is None:
            if not probe:
                hint = "" if probe is None else "; --probe (PROBE=1) measures the speed"
                return Estimate(None, space, f"no stored run is like those on {env}{hint}")
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the run's log repeats them
                    speed = speeds[kind] = _probe(run.spec)
                probes += 1
            except Exception as error:  # the plan is shown without an estimate
                return Estimate(None, space, f"a probe of {env} failed: {type_and_message(error)}")
        seconds += run.spec.phases * run.spec.steps_per_phase / speed[0] + speed[1]
    texts = [f"as {plural(len(ids), f'{where} run')} like these took" for where, ids in sorted(sources.items())]
    words = " and ".join([*texts, *["from a probe of a few seconds"] * bool(probes)])
    at_once = min(jobs, max(1, len(missing)))
    return Estimate(seconds / at_once, space, words, at_once * MAX_FILES * checkpoint)


def disk_bytes(phases: int) -> int:
    """Return the bytes on disk of a run with that many phases."""
    return phases * BYTES_PER_PHASE + BYTES_PER_RUN


def _probe(spec: RunSpec) -> tuple[float, float]:
    """Measure training steps per second in a few phases here, and the seconds that a run's evaluations take."""
    import torch

    from ..training.loop import simulation_of

    torch.set_num_threads(spec.threads)
    simulation = simulation_of(short := spec.probe())
    try:
        first = simulation.advance()  # includes one-time loading, and follows an evaluation
        begin = time.perf_counter()
        simulation.advance()
        speed = short.steps_per_phase / (time.perf_counter() - begin)
        seconds = first.seconds["evaluate"] / short.evaluation_count(final=False, problems=simulation.test_size)
        return speed, seconds * evaluation_size(spec, simulation.test_size)
    finally:
        simulation.close()


def evaluation_size(spec: RunSpec, problems: int) -> int:
    """Return the number of episodes, or of completions, of all evaluations of a run: one before training, and those at
    its points, of which the last is larger on control."""
    return len(spec.evaluation_phases()) * spec.evaluation_count(False, problems) + spec.evaluation_count(
        True, problems
    )


@dataclass(frozen=True)
class SimilarRuns:
    """Cost of earlier runs that have the same settings wherever they affect it."""

    where: str  # `stored` or `published`
    ids: frozenset[str]
    speed: float  # training steps per second; of published runs, that of the fast ones
    evaluation: float  # seconds that all evaluations of the run asked for would take
    memory: int  # bytes, maximum over the runs
    checkpoint: int = 0  # bytes of the largest checkpoint; 0: not recorded

    @property
    def count(self) -> int:
        return len(self.ids)


def similar_runs(spec: RunSpec, store: Store) -> SimilarRuns | None:
    """Summarise the similar runs in `store`, or if there are none, those in published bundles; None without any."""
    state = tuple(stamp(path) for path in (store.root / "runs", store.root / "runs.parquet") if path.exists())
    similar = _read_similar(store.root, state, type(spec).from_dict, spec.to_json())
    return similar or _sum_up(PUBLISHED, _published_runs(), spec)


@functools.lru_cache(64)
def _read_similar(root: Path, state: object, parse: Callable[[Any], RunSpec], spec: str) -> SimilarRuns | None:
    """Summarise stored runs, cached: `state` changes if a run is added or removed; a spec as text is hashable."""
    return _sum_up("stored", Store(root).read_all(), parse(json.loads(spec)))


def _sum_up(where: str, runs: Iterable[StoredRun], spec: RunSpec) -> SimilarRuns | None:
    alike = [run for run in runs if all(run.spec.get(key) == getattr(spec, key) for key in spec.alike)]
    nearest = _nearest(alike, spec)
    basis = _nearest(alike, spec, larger=True) if where == PUBLISHED else nearest
    records = [run.record for run in basis]
    evaluating = np.array([r["seconds"]["evaluate"] for r in records], dtype=np.float64)
    training = np.array([r["seconds"]["total"] for r in records], dtype=np.float64) - evaluating
    steps = np.array([_steps_taken(r) for r in records], dtype=np.float64)
    if steps.sum() < 1 or not 0 < training.sum() < math.inf:
        return None
    speed, evaluation = steps.sum() / training.sum(), np.array([_evaluation_seconds(spec, r) for r in records])
    seconds = evaluation.mean()
    if where == PUBLISHED and (sound := (steps > 0) & (training > 0)).any():
        speed, seconds = 1.0 / np.quantile(training[sound] / steps[sound], FAST), np.quantile(evaluation, FAST)
    memory, checkpoint = (
        max(run.record.get(key, 0) for run in nearest) or max(run.record.get(key, 0) for run in alike)  # old: none
        for key in ("peak_memory", "checkpoint_bytes")
    )
    return SimilarRuns(where, frozenset(run.id for run in basis), float(speed), float(seconds), memory, checkpoint)


def _nearest(runs: Sequence[StoredRun], spec: RunSpec, larger: bool = False) -> Sequence[StoredRun]:
    """Choose the runs with the learner and the capacity of a spec, if there are any. larger: also those with a larger
    capacity, since no run is faster with more versions: they correct for runs that shared their machine."""
    learner = getattr(spec, "learner", None)
    runs = [run for run in runs if {**spec.before(), **run.spec}.get("learner") == learner] or runs
    fits = [run for run in runs if run.spec["capacity"] == spec.capacity]
    fits += [run for run in runs if larger and run.spec["capacity"] > spec.capacity]
    return fits or runs


def _evaluation_seconds(spec: RunSpec, record: Mapping[str, Any]) -> float:
    """Return the seconds that the evaluations of a run would take at the pace of those of a stored one."""
    problems = len(record["scores"][record["task"]["score"]]["returns"])
    values = {**spec.before(), **record["spec"]}
    settings = {name: values[name] for name in spec.of_evaluation if name in values}
    try:
        earlier = dataclasses.replace(spec, fill_phases=0, fill_learning_rate=0.0, steps=record["steps"], **settings)
    except UserError:  # sizes that no run has
        return float(record["seconds"]["evaluate"])
    return float(record["seconds"]["evaluate"]) * evaluation_size(spec, problems) / evaluation_size(earlier, problems)


def _steps_taken(record: Mapping[str, Any]) -> float:
    """Return the steps of a run, including those of the phases before its budget."""
    phases = int(record.get("phases", 0))
    budget = phases - int(record["spec"].get("fill_phases", 0))
    return float(record["steps"] * phases / budget if budget > 0 else record["steps"])


def _published_runs() -> list[StoredRun]:
    return _runs_in(*published_bundles())


@functools.cache
def _runs_in(*folders: Path) -> list[StoredRun]:
    runs = list[StoredRun]()
    for folder in folders:
        try:
            runs += Store(folder).read_all()
        except UserError as error:  # a copy in the working folder may be damaged
            LOGGER.warning("no estimate rests on %s: %s", folder, error)
    return runs


def blind_notes(plan: Plan) -> list[str]:
    """Warn of each method that does not see its mismatch model, or corrects for one that is absent, one line each."""
    specs = {(run.label, run.spec.mismatch, run.spec.behaviour): run.spec for run in plan.runs}
    methods = [(make_algorithm(spec), spec) for spec in specs.values()]
    lines = (warn(*method) for method in methods for warn in (mismatch_warning, idle_correction))
    return list(dict.fromkeys(line for line in lines if line is not None))


def idle_setting_notes(plan: Plan) -> list[str]:
    """Warn of each setting of control, other than its default, that no run of a plan with this value uses."""
    specs: list[Any] = [run.spec for run in plan.runs if hasattr(run.spec, "envs_per_actor")]
    lines = []
    for name, is_idle, reason in IDLE_SETTINGS:
        for value in dict.fromkeys(getattr(spec, name) for spec in specs):
            users = [spec for spec in specs if getattr(spec, name) == value]
            if value != getattr(type(users[0]), name) and all(map(is_idle, users)):
                lines.append(f"{name}={value} does nothing {reason.format(users[0])}; leave it out")
    return lines


def lag_notes(plan: Plan) -> list[str]:
    """Warn of each lag model and capacity whose mean lag the runs are too short to reach, one line each."""
    lines = []
    specs = {(run.spec.capacity, run.spec.lag, run.spec.phases): run.spec for run in plan.runs}
    for (k, lag, phases), spec in sorted(specs.items()):
        forecast = expected_lag(spec, read_lag(lag))
        if forecast is None or forecast.mean is None or forecast.expected is None:
            continue
        if forecast.expected < SHORT_LAG * forecast.mean:
            prefix = "over " if k > WIDEST else ""
            lines.append(
                f"less lag than it looks: LAG={lag} at K={k} has a mean lag of {prefix}{number(forecast.mean)} phases "
                f"once the buffer is full, and of {number(forecast.expected)} over the {plural(phases, 'phase')} of "
                "a run"
            )
    return lines
