"""What a sweep will cost, before it starts: time and checkpoints from stored runs like it, or time from a short probe;
and disk."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ..base.text import duration, megabytes
from ..simulator.checkpoint import MOST
from ..spec import RunSpec
from ..store.store import Store
from .plan import PlannedRun
from .precedents import precedents

BYTES_PER_PHASE = 2_500  # metrics as lines and as a table
BYTES_PER_RUN = 40_000


@dataclass(frozen=True)
class Estimate:
    seconds: float | None  # None: nobody knows
    bytes: int
    source: str  # where the speed comes from
    checkpoints: int = 0  # bytes of them that are there at a time, at most; 0: nobody knows

    @property
    def text(self) -> str:
        if self.seconds is None:
            return f"{self.room}; no estimate of the time: {self.source}"
        if not self.seconds:
            return "nothing to do: every run is stored"
        return f"about {duration(self.seconds)} ({self.source}) and {self.room}"

    @property
    def room(self) -> str:
        meanwhile = f", plus up to {megabytes(self.checkpoints)} of checkpoints until then"
        return f"{megabytes(self.bytes)} of disk" + meanwhile * (self.checkpoints > self.bytes)


def estimate(missing: Sequence[PlannedRun], store: Store, jobs: int, probe: bool = False) -> Estimate:
    """Wall time of the missing runs at `jobs` at a time, in seconds, and disk in bytes. Speeds are those of runs like
    them in `store`, or else in the published bundles, or else, where asked for, of a probe here."""
    seconds, sources = 0.0, Counter[str]()
    space, checkpoint = sum(disk(run.spec.phases) for run in missing), 0
    speeds: dict[str, float | None] = {}
    for run in missing:
        env = run.spec.env
        if env not in speeds:
            known = precedents(run.spec, store)
            speeds[env] = known.speed if known else None
            if known:
                sources[f"as {{}} {known.where} runs like these took"] += known.count
                checkpoint = max(checkpoint, known.checkpoint)
        if (speed := speeds[env]) is None:
            if not probe:
                return Estimate(None, space, f"no stored run is like those on {env}; --probe (PROBE=1) measures")
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # the run says them again, in its log
                    speed = speeds[env] = _probe(run.spec)
                sources["from a probe of a few seconds"] += 1
            except Exception as error:  # the plan is worth showing all the same
                line = " ".join(str(error).split())
                return Estimate(None, space, f"a probe of {env} failed: {type(error).__name__}: {line}")
        seconds += run.spec.phases * run.spec.steps_per_phase / speed
    words = " and ".join(sorted(text.format(count) for text, count in sources.items()))
    at_once = min(jobs, max(1, len(missing)))
    return Estimate(seconds / at_once, space, words, at_once * MOST * checkpoint)


def disk(phases: int) -> int:
    """Bytes that a run of so many phases takes."""
    return phases * BYTES_PER_PHASE + BYTES_PER_RUN


def _probe(spec: RunSpec) -> float:
    """Steps per second of a few phases here."""
    import torch

    from ..simulator.loop import simulation_of

    torch.set_num_threads(spec.threads)
    simulation = simulation_of(spec.probe())
    try:
        simulation.advance()  # the first phase pays for what is loaded once
        begin = time.perf_counter()
        simulation.advance()
        return simulation.spec.steps_per_phase / (time.perf_counter() - begin)
    finally:
        simulation.close()
