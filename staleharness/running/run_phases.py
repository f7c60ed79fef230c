"""Run in the caller's own process, phase by phase, with the bits of a worker's."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from ..base.streams import global_generators_restored
from ..spec import RunSpec
from ..training.loop import simulation_of
from ..training.phase_record import PhaseRecord

TURN = threading.RLock()  # held while the settings of the process are changed


def phases(spec: RunSpec) -> Iterator[PhaseRecord]:
    """Yield the records of the run's phases; nothing is written. Runs in several threads take turns, a phase at a time,
    because the settings that a phase depends on belong to the process."""
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
