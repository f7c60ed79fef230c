"""What everything that needs versions asks: the run's lag model, with the run's noise and a count of what it drew."""

from __future__ import annotations

from collections import Counter

import numpy as np

from ..errors import UserError
from ..lag import LEDGER, Assignment, Draw, keep, parse_lag, schedule_of
from ..schedule import Bools
from ..spec import RunSpec
from .expected_lag import expected_lag
from .row_ledger import check_pipeline


class Lags:
    """The lag model of a run. `draw` is a function of (seed, phase, index), so nothing has to be checkpointed.

    schedule: the rows of the whole run, where the model plans them; then it is not asked to `draw`.
    """

    def __init__(self, spec: RunSpec) -> None:
        self.model = parse_lag(spec.lag, spec.capacity)
        self.schedule = schedule_of(spec)
        if self.schedule is not None:
            check_pipeline(self.schedule.ledger)
        self.seed, self.capacity = spec.seed, spec.capacity
        self.expected, self.warm = expected_lag(spec, self.model), spec.warm
        self._phase = -1  # that was asked about last
        self._ledger: Counter[str] = Counter()  # of that phase
        self._rows: Counter[int] = Counter()  # of that phase, by lag

    def draw(self, phase: int, slots: int, *index: int, length: int = 1, used: Bools | None = None) -> Assignment:
        """Versions for `slots` rows of up to `length` decisions; `index` says which draw of the phase it is. `used`
        [slots]: which rows begin with what they are given, and are counted; None: all of them.

        Raises `UserError` where the model answers with something else, or with versions that the buffer does not hold.
        """
        question = Draw(phase, slots, self.capacity, length, self.seed, (phase, *index))
        answer = keep(np.full(slots, phase)) if self.warm(phase) else self.model.assign(question)
        self._check_versions(question, answer)
        ledger = {name: self._rows_of(name, count) for name, count in answer.ledger.items()}
        if self._phase != phase:
            self._phase, self._ledger, self._rows = phase, Counter(), Counter()
        self._ledger.update(ledger)
        starts = answer.starts if used is None else answer.starts[used]
        self._rows.update((phase - starts).tolist())
        return answer

    def _check_versions(self, question: Draw, answer: Assignment) -> None:
        said, versions, phase = f"LAG={self.model.text}", np.asarray(answer.versions), question.phase
        shape = (question.slots, 1 if answer.every is None else -(-question.length // answer.every))
        if versions.shape != shape:
            raise UserError(
                f"{said} assigned versions of shape {versions.shape} in phase {phase}, where {shape} was asked for"
            )
        if not isinstance(answer.versions, np.ndarray) or not np.issubdtype(versions.dtype, np.integer):
            raise UserError(
                f"{said} assigned versions as a {type(answer.versions).__name__} of {versions.dtype}; "
                "give an array of whole numbers"
            )
        if versions.size and not (question.held[0] <= versions.min() <= versions.max() <= phase):
            raise UserError(
                f"{said} assigned versions {versions.min()} to {versions.max()} in phase {phase}, where the buffer "
                f"holds {question.held[0]} to {phase}"
            )
        if (np.diff(versions, axis=1) < 0).any():
            raise UserError(f"{said} goes back to an older version inside a row, in phase {phase}")
        if answer.every is not None and not self.model.within_rows:
            raise UserError(f"{said} changes weights inside a row and does not say within_rows")

    def _rows_of(self, name: str, count: int) -> int:
        """A count of the model's ledger as a plain number, of whatever kind of integer it came."""
        if name not in LEDGER:
            raise UserError(f"LAG={self.model.text} counts {name!r}; a ledger has {', '.join(LEDGER)}")
        if not isinstance(count, int | np.integer) or count < 0:
            raise UserError(
                f"LAG={self.model.text} counts {count!r} rows as {name!r}; give a whole number, not below 0"
            )
        return int(count)

    def ledger(self, phase: int) -> dict[str, int]:
        """`lag_dropped` and so on, in rows, over the draws of a phase; empty where the model counts nothing."""
        counted = self._ledger if self._phase == phase else {}
        return {f"lag_{name}": counted[name] for name in LEDGER if name in counted}

    def assigned(self, phase: int) -> list[int]:
        """Rows of a phase by the lag that they were assigned to begin with; empty where nobody asked."""
        if self.schedule is not None:
            lags = phase - self.schedule.oldest[self.schedule.trained_in(phase)]
            return [int(count) for count in np.bincount(lags)]
        rows = self._rows if self._phase == phase else {}
        return [rows.get(lag, 0) for lag in range(max(rows, default=-1) + 1)]

    @property
    def cap(self) -> int:
        """The largest lag that can come up, in phases."""
        return self.expected.cap if self.expected else self.capacity - 1

    def probabilities(self, phase: int) -> dict[int, float]:
        """Version -> probability that a row of `phase` begins with it."""
        return {phase: 1.0} if self.warm(phase) else self.model.probabilities(phase, self.capacity)

    def oldest(self, phase: int) -> int:
        """The version that even an actor in the middle of an episode may not be behind."""
        return phase if self.warm(phase) else self.model.oldest(phase)
