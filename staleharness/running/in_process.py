"""One run in the caller's own process, phase by phase, with the bits of a worker's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from ..simulator.phase import PhaseRecord
from ..spec import RunSpec
from ..task import simulation_of


def phases(spec: RunSpec) -> Iterator[PhaseRecord]:
    """What each phase of the run leaves behind. Nothing is written."""
    with _arithmetic(spec):
        simulation = simulation_of(spec)
        records = iter(simulation)
    try:
        while True:
            with _arithmetic(spec):
                record = next(records, None)
            if record is None:
                return
            yield record
    finally:
        simulation.close()


@contextlib.contextmanager
def _arithmetic(spec: RunSpec) -> Iterator[None]:
    """torch as a worker sets it, since bits depend on it; the caller's own settings come back afterwards."""
    import torch

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
