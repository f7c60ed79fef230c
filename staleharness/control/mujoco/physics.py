"""Many MuJoCo simulations of one model, stepped on threads, bit for bit like one MjData each.

A simulation between two calls is one row of numbers, MuJoCo's integration state (time, positions, velocities,
warm start, controls, ...). A call loads the row into an MjData that its thread owns, computes, and writes the
row back: the working memory stays in the cache, and results cannot depend on the number of threads.

Two ways of doing that share one interface. `BatchPhysics` is MuJoCo's own batch (C threads). `PoolPhysics` does
the same from Python threads and can call `mj_rnePostConstraint` after the last substep, for which the batch has
no call and without which the contact forces `cfrc_ext` do not exist
(https://github.com/openai/gym/issues/1541).
"""

from __future__ import annotations

import ctypes
import logging
import queue
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import mujoco
import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.intp] | slice  # simulations: their numbers, sorted and unique, or ALL_SIMULATIONS
ALL_SIMULATIONS = slice(None)
INTEGRATION = int(mujoco.mjtState.mjSTATE_INTEGRATION)
STATE_FIELDS = {
    "qpos": int(mujoco.mjtState.mjSTATE_QPOS),
    "qvel": int(mujoco.mjtState.mjSTATE_QVEL),
    "ctrl": int(mujoco.mjtState.mjSTATE_CTRL),
}


class Physics:
    """`count` simulations of `model`.

    rows: [count, state size], the integration states; writing to it (or to a state field) writes the
        simulations.
    fields: `qpos`, `qvel`, `ctrl` as views of the rows, and the derived MjData fields asked for, each [count,
        ...], as the last call on that simulation left them (after a step they describe the state before the
        last substep, as after `mj_step`).
    warnings: [count, kinds] of int, what MuJoCo complained about in the last call on each simulation
        (`mjtWarning`).
    """

    rows: NDArray[np.float64]
    warnings: NDArray[np.int32]

    def __init__(self, model: mujoco.MjModel, rows: NDArray[np.float64]) -> None:
        stop_timers()
        self.rows = rows
        self.fields: dict[str, NDArray[np.float64]] = {}
        for name, bit in STATE_FIELDS.items():
            # components lie in the order of their bits
            start = mujoco.mj_stateSize(model, INTEGRATION & (bit - 1))
            self.fields[name] = rows[:, start : start + mujoco.mj_stateSize(model, bit)]
        blank = mujoco.MjData(model)
        self.initial_row = np.empty(rows.shape[1])
        mujoco.mj_getState(model, blank, self.initial_row, INTEGRATION)

    def advance(self, simulations: Indices, substeps: int) -> None:
        """`mj_step` `substeps` times on the given simulations; 0 times: `mj_forward`, as after `mj_resetData` and a
        write to the state."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the threads."""


class BatchPhysics(Physics):
    """MuJoCo's own batch: the fastest, for every field that `mj_step` computes itself."""

    def __init__(self, model: mujoco.MjModel, count: int, threads: int, derived: Sequence[str]) -> None:
        from mujoco.batch import Batch

        self._batch = Batch(model, count, threads)
        super().__init__(model, self._batch.state)
        self.fields.update({name: self._batch.bind(name) for name in derived})
        self.warnings = self._batch.warning[:, :, 1]  # pairs of (last info, number of times)

    def advance(self, simulations: Indices, substeps: int) -> None:
        self.warnings[simulations] = 0
        ids = None if isinstance(simulations, slice) else simulations
        if substeps:
            self._batch.step(ids, nstep=substeps)
        else:
            self._batch.forward(ids)


class PoolPhysics(Physics):
    """Python threads around `mj_step`, which releases the interpreter lock; contact forces included."""

    def __init__(self, model: mujoco.MjModel, count: int, threads: int, derived: Sequence[str]) -> None:
        super().__init__(model, np.zeros((count, mujoco.mj_stateSize(model, INTEGRATION))))
        self._model = model
        self._threads = threads
        self._executor = ThreadPoolExecutor(max(1, threads - 1), "mujoco")
        self._idle: queue.SimpleQueue[mujoco.MjData] = queue.SimpleQueue()
        for _ in range(threads):
            self._idle.put(mujoco.MjData(model))
        sample = mujoco.MjData(model)
        self._derived = tuple(derived)
        self.fields.update({name: np.zeros((count, *getattr(sample, name).shape)) for name in derived})
        self.warnings = np.zeros((count, len(sample.warning.number)), dtype=np.int32)

    def advance(self, simulations: Indices, substeps: int) -> None:
        """Run on all threads, the caller's among them. Each takes the next simulation when it is done with its last,
        since a robot on the ground costs more than one in the air; a thread is woken once per call."""
        self.warnings[simulations] = 0
        numbers = range(len(self.rows)) if isinstance(simulations, slice) else simulations.tolist()
        common = iter(numbers)
        helpers = [
            self._executor.submit(self._work, common, substeps) for _ in range(min(self._threads, len(numbers)) - 1)
        ]
        try:
            self._work(common, substeps)
        finally:
            for helper in helpers:
                helper.result()

    def _work(self, simulations: Iterator[int], substeps: int) -> None:
        model, rows, data = self._model, self.rows, self._idle.get()
        derived = [(self.fields[name], getattr(data, name)) for name in self._derived]
        complaints = data.warning.number
        complaints[:] = 0
        no_warnings = complaints.tobytes()
        try:
            for i in simulations:
                row = rows[i]
                if substeps:
                    mujoco.mj_setState(model, data, row, INTEGRATION)
                    mujoco.mj_step(model, data, substeps)
                    mujoco.mj_rnePostConstraint(model, data)
                else:
                    mujoco.mj_resetData(model, data)  # the last simulation's contact forces must not stay
                    mujoco.mj_setState(model, data, row, INTEGRATION)
                    mujoco.mj_forward(model, data)
                mujoco.mj_getState(model, data, row, INTEGRATION)
                for target, source in derived:
                    target[i] = source
                if complaints.tobytes() != no_warnings:
                    self.warnings[i] = complaints
                    complaints[:] = 0
        finally:
            self._idle.put(data)

    def close(self) -> None:
        self._executor.shutdown()


def stop_timers() -> None:
    """Give MuJoCo a clock that stands still: reading the real one, for `MjData.timer`, takes a sixth of a step.

    The clock is a constant of Python's C API, called without its lock. A clock that the user has set is kept.
    """
    if mujoco.get_mjcb_time() is None:
        mujoco.set_mjcb_time(ctypes.CFUNCTYPE(ctypes.c_double)(("PyFloat_GetMin", ctypes.pythonapi)))


def log_warnings() -> None:
    """Send MuJoCo's warnings to the logger "mujoco" instead of a file MUJOCO_LOG.TXT in the current
    folder.
    """
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(_log)


def _log(text: str) -> None:
    # errors of a simulation contain its time; other messages are remarks of the compiler on a model file
    level = logging.WARNING if "Time = " in text else logging.INFO
    logging.getLogger("mujoco").log(level, text)
