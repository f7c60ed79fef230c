"""One run in the caller's own process, phase by phase, with the bits of a worker's."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from ..base.streams import global_generators_restored
from ..simulator.loop import simulation_of
from ..simulator.phase_record import PhaseRecord
from ..spec import RunSpec

TURN = threading.RLock()  # held by whoever has changed the settings of the process


def phases(spec: RunSpec) -> Iterator[PhaseRecord]:
    """Records of the run's phases. Nothing is written. Runs in several threads take turns, a phase at a time: what a
    phase depends on belongs to the process."""
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
    """torch as a worker sets it, since bits depend on it. The caller's own settings, and the states of its global
    random generators, come back afterwards."""
    import torch

    with TURN, global_generators_restored():
        threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic means on a GPU
        torch.set_num_threads(spec.threads)
        torch.set_deterministic_debug_mode(
            "error"
        )  # the same as use_deterministic_algorithms, without loading a compiler
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(mode)
            torch.set_num_threads(threads)
