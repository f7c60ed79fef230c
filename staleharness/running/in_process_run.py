"""Run in the caller's own process, phase by phase, with the same bits as in a worker."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..spec import RunSpec
    from ..training.phase_record import PhaseRecord

TURN = threading.RLock()  # held while a run is planned, and while the settings of the process are changed


def phases(spec: RunSpec, keep_data: bool = False) -> Iterator[PhaseRecord]:
    """Return the records of the run's phases, each computed on demand; nothing is written. Runs in several
    threads take turns, a phase at a time, because the settings that a phase depends on belong to the process.
    keep_data: each record holds the data that its phase trained on.

    Raises `UserError` at once if this machine cannot execute the run."""
    from ..task import find_env
    from .runner_interface import check_device_here

    check_device_here(spec.device)
    find_env(spec.env)[1].check_here(spec)
    return _records(spec, keep_data)


def _records(spec: RunSpec, keep_data: bool) -> Iterator[PhaseRecord]:
    from ..training.loop import simulation_of

    with _as_in_a_worker(spec):
        simulation = simulation_of(spec)
        simulation.keep_data = keep_data
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
    from ..training.torch_setup import default_modes, make_deterministic

    with TURN, global_generators_restored(), default_modes():
        threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
        cudnn_sdp = torch.backends.cuda.cudnn_sdp_enabled()
        make_deterministic(spec.threads)
        try:
            yield
        finally:
            torch.backends.cuda.enable_cudnn_sdp(cudnn_sdp)
            torch.set_deterministic_debug_mode(mode)
            torch.set_num_threads(threads)
