"""Values of a log with their steps: in the order of steps, and one per step where a log of step means repeats steps, as
that of a run does which was restarted from a checkpoint."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from ..base.text_formatting import plural
from ..errors import UserError, shorten

Numbers = NDArray[np.float64]
MAX_SORTED = 2**20  # values that are sorted in memory
DISORDER = f"it goes down, and no more than {MAX_SORTED:,} values are sorted"


class LoggedValues:
    """Rows with a value, piece by piece.

    `read` begins to read the file: pieces [m, columns], NaN where a cell is missing; with `steps`, the name of their
    column, the last two columns are step and run. `is_mean`: a value is a mean over a step, so that only the last one
    of each step counts; otherwise there may be many per step, and all count. `notes` says what is left out, in words.
    """

    def __init__(self, file: str, read: Callable[[], Iterator[Numbers]], steps: str | None, is_mean: bool) -> None:
        self._file, self._read, self._steps, self._is_mean = file, read, steps, is_mean
        self.rows, self.missing = 0, 0  # in the file, and those without a value among them
        self.notes: list[str] = []

    def pieces(self) -> Iterator[Numbers]:
        """Iterate over the values that count. Raises `UserError` for step means that are too many to sort."""
        if self._steps is None:
            yield from self._valid()
            return
        source, order, kept = self._valid(), _Order(), list[Numbers]()
        for rows in source:
            order.add(rows)
            kept.append(rows)
            if order.values > MAX_SORTED:
                break
        problem = order.problem or (f"it is {order.last[0, 0]:g} in all" if order.steps == 1 else "")
        keeps_last = self._is_mean and not problem
        stream: Iterator[Numbers] = iter(kept)
        if order.values > MAX_SORTED:
            if keeps_last:
                self._require(order)
            stream = itertools.chain(kept, self._rest(source, order, keeps_last))
        elif not problem and not order.is_sorted:
            rows = np.concatenate(kept)
            rows = rows[np.lexsort((rows[:, -2], rows[:, -1]))]  # by run, then by step; stable
            stream, order = iter([rows]), _Order()
            order.add(rows)
            self.notes += [] if order.repeats and self._is_mean else ["sorted by step"]
        yield from _last_of_steps(stream) if keeps_last else _without_steps(stream)
        problem = problem or order.problem or ("" if order.is_sorted else DISORDER)
        if not problem:
            self._say(order.repeats, order.values - order.steps)
        elif order.values > 1:
            self.notes.append(f"{shorten(self._steps)} is not used to order {order.values:,} rows: {problem}")

    def _rest(self, source: Iterator[Numbers], order: _Order, needs_order: bool) -> Iterator[Numbers]:
        """Iterate over what follows the values that could be sorted."""
        for rows in source:
            order.add(rows)
            if needs_order:
                self._require(order)
            yield rows

    def _require(self, order: _Order) -> None:
        if order.problem or not order.is_sorted:
            raise UserError(
                f"LOG={self._file}: column {shorten(self._steps or '')!r}: {order.problem or DISORDER}; sort the file "
                "by run and step, without rows that have no step"
            )

    def _valid(self) -> Iterator[Numbers]:
        """Iterate over rows that have a value."""
        self.rows, self.missing = 0, 0
        width = None if self._steps is None else -2
        for rows in self._read():
            has_value = ~np.isnan(rows[:, :width]).any(axis=1)
            self.rows += len(rows)
            self.missing += len(rows) - int(has_value.sum())
            if has_value.any():
                yield rows[has_value]

    def _say(self, repeats: int, surplus: int) -> None:
        """Note how many steps have several values, and how many values beyond one for each."""
        if not repeats:
            return
        steps, verb = plural(repeats, "step"), "was" if repeats == 1 else "were"
        if not self._is_mean:
            self.notes.append(f"{steps} {'occurs' if repeats == 1 else 'occur'} more than once: every row counts")
        elif surplus == repeats:
            self.notes.append(f"{steps} {verb} logged twice: the last value of each counts")
        else:
            self.notes.append(
                f"{steps} {verb} logged more than once: the last value of each counts, {surplus:,} earlier ones do not"
            )


def _without_steps(pieces: Iterator[Numbers]) -> Iterator[Numbers]:
    for rows in pieces:
        yield rows[:, :-2]


def _last_of_steps(pieces: Iterator[Numbers]) -> Iterator[Numbers]:
    """Iterate over the last rows of each step, from rows in the order of steps."""
    waiting = None  # the last row: the next piece may begin with its step
    for rows in pieces:
        rows = rows if waiting is None else np.concatenate([waiting, rows])
        is_last = (np.diff(rows[:, -2:], axis=0) != 0).any(axis=1)
        yield rows[:-1][is_last][:, :-2]
        waiting = rows[-1:]
    if waiting is not None:
        yield waiting[:, :-2]


class _Order:
    """Steps as they pass, in constant memory: whether they are usable and ascend, and how many there are if so."""

    def __init__(self) -> None:
        self.problem = ""
        self.is_sorted = True
        self.values = self.steps = self.repeats = 0
        self.last: Numbers = np.empty((0, 2))  # step and run of the last row
        self._is_repeat = False  # the last row has the step of the one before it

    def add(self, rows: Numbers) -> None:
        """Add rows [m, columns], m > 0."""
        self.values += len(rows)
        keys = np.concatenate([self.last, rows[:, -2:]])
        step, run = np.diff(keys, axis=0).T
        is_repeat = (step == 0) & (run == 0)
        if not np.isfinite(rows[:, -2]).all():
            self.problem = "not all have a number there"
        self.is_sorted &= bool(((run > 0) | (run == 0) & (step >= 0)).all())
        self.steps += int((~is_repeat).sum()) + (not len(self.last))
        before = np.append(self._is_repeat, is_repeat)
        self.repeats += int((is_repeat & ~before[:-1]).sum())
        self._is_repeat = bool(before[-1])
        self.last = keys[-1:]
