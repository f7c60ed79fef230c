"""What a sweep will cost, before it starts: time from stored runs like it or from a short probe, and disk."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from ..base.text import duration
from ..spec import RunSpec
from ..store.store import Store
from .plan import PlannedRun

BYTES_PER_PHASE = 2_500  # metrics as lines and as a table
BYTES_PER_RUN = 40_000


@dataclass(frozen=True)
class Estimate:
    seconds: float | None  # None: nobody knows
    bytes: int
    source: str  # where the speed comes from

    @property
    def text(self) -> str:
        if self.seconds is None:
            return f"no estimate of the time: {self.source}"
        if not self.seconds:
            return "nothing to do: every run is stored"
        return (
            f"about {duration(self.seconds)} ({self.source}) and {max(1, round(self.bytes / 1e6))} MB of disk"
        )


def estimate(missing: Sequence[PlannedRun], store: Store, jobs: int) -> Estimate:
    """Wall time of the missing runs at `jobs` at a time, in seconds, and disk in bytes."""
    seconds, sources = 0.0, set()
    speeds: dict[str, tuple[float, str]] = {}
    for run in missing:
        if run.spec.env not in speeds:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the run says them again, in its log
                    speeds[run.spec.env] = _speed(run.spec, store)
            except Exception as error:  # the plan is worth showing all the same
                line = " ".join(str(error).split())
                return Estimate(None, 0, f"a probe of {run.spec.env} failed: {type(error).__name__}: {line}")
        rate, source = speeds[run.spec.env]
        seconds += run.spec.phases * run.spec.steps_per_phase / rate
        sources.add(source)
    space = sum(run.spec.phases * BYTES_PER_PHASE + BYTES_PER_RUN for run in missing)
    return Estimate(seconds / min(jobs, max(1, len(missing))), space, " and ".join(sorted(sources)))


def _speed(spec: RunSpec, store: Store) -> tuple[float, str]:
    """Steps per second of one run, evaluation included, and where that comes from."""
    rates = [
        run.record["steps"] / run.record["seconds"]["total"]
        for run in store.read_all()
        if all(run.spec.get(key) == getattr(spec, key) for key in spec.alike)
    ]
    if rates:
        return sum(rates) / len(rates), f"as {len(rates)} stored runs like these took"
    return _probe(spec), "from a probe of a few seconds"


def _probe(spec: RunSpec) -> float:
    """Train a few phases here."""
    import torch

    from ..task import simulation_of

    torch.set_num_threads(spec.threads)
    simulation = simulation_of(spec.probe())
    try:
        simulation.advance()  # the first phase pays for what is loaded once
        begin = time.perf_counter()
        simulation.advance()
        return simulation.spec.steps_per_phase / (time.perf_counter() - begin)
    finally:
        simulation.close()
