"""Lag model of a run: the rows of each phase, a ledger of the draws, and the expected lag."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..base.streams import stream
from ..errors import UserError, one_line, shorten
from ..lag import LEDGER, Assignment, Draw, LagModel, held, keep, parse_lag, schedule_of
from ..rollout_schedule import Bools, Ints, PhaseRows, Schedule
from ..spec import RunSpec


class Lags:
    """The lag model of a run, the same for every kind of task.

    `rows` gives the rows of a phase, whether versions are drawn or scheduled; actors in real time do not use it. Draws
    are a function of (seed, phase, index), so nothing has to be checkpointed.

    schedule: rows of the whole run, where the model plans them.
    drawn: whether versions are drawn in each phase.
    """

    def __init__(self, spec: RunSpec) -> None:
        self.model = parse_lag(spec.lag, spec.capacity)
        self.drawn = self.model.drawn
        self.schedule = schedule_of(spec)
        self.seed, self.capacity = spec.seed, spec.capacity
        self.expected, self.warm = expected_lag(spec, self.model), spec.warm
        self._phase = -1  # of the last draw
        self._ledger: Counter[str] = Counter()  # of that phase
        self._rows: Counter[int] = Counter()  # of that phase, by lag

    def rows(self, phase: int, slots: int, group_size: int = 1, length: int = 1, first: int | None = None) -> PhaseRows:
        """Return the rows that `phase` generates and trains on.

        The other arguments are for models that draw. They give `slots` groups of `group_size` rows of up to `length`
        decisions, each group with its own version.

        first: number of the first slot, where a phase draws several times.
        """
        if self.schedule is not None:
            return self.schedule.rows(phase)
        index = () if first is None else (first,)
        drawn = self.draw(phase, slots, *index, length=length)
        return rows_from_draw(phase, drawn.versions, drawn.every or length, length, group_size, first or 0)

    def draw(self, phase: int, slots: int, *index: int, length: int = 1, fresh: Bools | None = None) -> Assignment:
        """Return versions for `slots` rows of up to `length` decisions.

        index: number of the draw in its phase.
        fresh: [slots] rows that begin with the version they get, and are counted; None: all of them, and the ledger of
            the model, too.

        Raises `UserError` where the model answers with something else, or with versions that the buffer does not hold.
        """
        request = Draw(phase, slots, self.capacity, length, self.seed, (phase, *index))
        try:
            answer = keep(np.full(slots, phase)) if self.warm(phase) else self.model.assign(request)
        except UserError as error:
            if str(error).startswith("LAG="):
                raise
            raise UserError(f"LAG={self.model.text}: {error}") from error
        answer = validate_assignment(self.model, request, answer)
        if self._phase != phase:
            self._phase, self._ledger, self._rows = phase, Counter(), Counter()
        if fresh is None:  # the model counts rows that do not begin, too
            self._ledger.update(answer.ledger)
        starts = answer.starts if fresh is None else answer.starts[fresh]
        self._rows.update((phase - starts).tolist())
        return answer

    def ledger(self, phase: int) -> dict[str, int]:
        """Return `lag_dropped` and so on, in rows, over the draws of a phase; empty where the model counts nothing."""
        counts = self._ledger if self._phase == phase else {}
        return {f"lag_{name}": counts[name] for name in LEDGER if name in counts}

    def assigned_lags(self, phase: int) -> list[int]:
        """Return the rows of a phase by the lag that they were assigned to begin with; empty where none was drawn."""
        if self.schedule is not None:
            lags = phase - self.schedule.oldest[self.schedule.trained_in(phase)]
            return [int(count) for count in np.bincount(lags)]
        rows = self._rows if self._phase == phase else {}
        return [rows.get(lag, 0) for lag in range(max(rows, default=-1) + 1)]

    @property
    def cap(self) -> int:
        """Largest lag that the model gives or its pipeline's rules allow, in phases; late rows may exceed it."""
        return self.expected.cap if self.expected else self.capacity - 1

    def probabilities(self, phase: int) -> dict[int, float]:
        """Return version -> probability that a row of `phase` begins with it."""
        if self.warm(phase):
            return {phase: 1.0}
        return validate_probabilities(self.model, phase, self.capacity, self.model.probabilities(phase, self.capacity))

    def oldest(self, phase: int) -> int:
        """Return the oldest version that an actor may act with, even in the middle of an episode."""
        return phase if self.warm(phase) else self.model.oldest(phase)


def rows_from_draw(
    phase: int, versions: Ints, segment: int, length: int, group_size: int = 1, first: int = 0
) -> PhaseRows:
    """Return the rows of a phase that trains on all of them, with drawn versions.

    Slot i is actor `first` + i, which has generated a group in every earlier phase.

    versions: [slots, segments], of `segment` decisions each; the last lasts to the end of the row at `length`.
    group_size: rows of a slot's group.
    """
    slots, segments = versions.shape
    slot = np.repeat(np.arange(first, first + slots), group_size)
    n = len(slot)
    schedule = Schedule(
        group=slot,
        actor=slot,
        nth=np.full(n, phase),
        phase=np.full(n, phase),
        place=slot,
        first=np.arange(n + 1) * segments,
        version=np.repeat(versions, group_size, axis=0).ravel(),
        end=np.tile(np.minimum(np.arange(1, segments + 1) * segment, length), n),
        kept=np.ones(n * segments, np.bool_),
        ledger={},
    )
    all_rows = np.arange(n)
    return PhaseRows(schedule, [all_rows], all_rows, min(segment, length))


def validate_assignment(model: LagModel, request: Draw, answer: object) -> Assignment:
    """Return a model's answer to a draw, with versions as int64 and counts as plain numbers. Raises `UserError` where
    it is something else, or has versions that the buffer does not hold."""
    title = f"LAG={model.text}"
    if not isinstance(answer, Assignment):
        raise UserError(f"{title}: assign returns a {type(answer).__name__}, not an Assignment")
    _check_versions(model, request, answer)
    if not isinstance(answer.ledger, Mapping):
        raise UserError(f"{title} has the ledger {shorten(repr(answer.ledger))}; give a dict of counts")
    ledger = {name: _row_count(model, name, count) for name, count in answer.ledger.items()}
    return replace(answer, versions=answer.versions.astype(np.int64, copy=False), ledger=ledger)


def _check_versions(model: LagModel, request: Draw, answer: Assignment) -> None:
    title, phase, segment = f"LAG={model.text}", request.phase, answer.every
    if segment is not None and (isinstance(segment, bool) or not isinstance(segment, int | np.integer) or segment < 1):
        raise UserError(
            f"{title} assigned segments of every={segment!r} decisions; give a whole number above 0, or None"
        )
    try:
        versions = np.asarray(answer.versions)
    except ValueError:
        raise UserError(f"{title} assigned segments of different numbers; give an array [slots, segments]") from None
    shape = (request.slots, 1 if segment is None else -(-request.length // segment))
    if versions.shape != shape:
        raise UserError(
            f"{title} assigned versions of shape {versions.shape} in phase {phase}, where {shape} was asked for"
        )
    if not isinstance(answer.versions, np.ndarray) or not np.issubdtype(versions.dtype, np.integer):
        raise UserError(
            f"{title} assigned versions as a {type(answer.versions).__name__} of {versions.dtype}; "
            "give an array of whole numbers"
        )
    if versions.size and not (request.held[0] <= versions.min() <= versions.max() <= phase):
        raise UserError(
            f"{title} assigned versions {versions.min()} to {versions.max()} in phase {phase}, where the buffer "
            f"holds {request.held[0]} to {phase}"
        )
    if (np.diff(versions, axis=1) < 0).any():
        raise UserError(f"{title} goes back to an older version inside a row, in phase {phase}")
    if segment is not None and not model.within_rows:
        raise UserError(f"{title} changes weights inside a row but does not declare within_rows = True")


def _row_count(model: LagModel, name: str, count: int) -> int:
    """Return a count of the model's ledger as a plain number, whatever kind of integer it is."""
    if name not in LEDGER:
        raise UserError(f"LAG={model.text} counts {name!r}; a ledger has {', '.join(LEDGER)}")
    if not isinstance(count, int | np.integer) or count < 0:
        raise UserError(f"LAG={model.text} counts {count!r} rows as {name!r}; give a whole number, not below 0")
    return int(count)


NEAR_1 = 1e-6  # rounding of a sum of probabilities
LOOKS = 256  # phases that are examined, of those with a full buffer and of the run
STRIDE = 257  # phases between two with a full buffer: a prime, so that each phase of a shorter period is seen
WIDEST = 1_024  # versions of a buffer that are examined for the mean lag; for a wider one it is a lower bound


class ExpectedLag(NamedTuple):
    """Lags in phases, of the version that a row begins with."""

    mean: float | None  # once the buffer is full; None where only a simulation gives it
    cap: int  # the largest possible, or that a rule of the pipeline allows
    expected: float | None  # mean over the phases of the run's budget


def expected_lag(spec: RunSpec, model: LagModel) -> ExpectedLag | None:
    """Return the lag to expect; None where the model knows neither its probabilities before the run nor a bound."""
    capacity = min(spec.capacity, WIDEST)
    full_phases = range(capacity, capacity + LOOKS * STRIDE, STRIDE)
    looks = min(spec.budget_phases, LOOKS)
    places = np.arange(looks) + stream(0, "looks").random(looks)  # at random, so that no period is always met alike
    run_phases = [spec.fill_phases + int(place * spec.budget_phases / looks) for place in places]
    try:
        distributions = {
            phase: model.probabilities(phase, capacity) for phase in dict.fromkeys([*full_phases, *run_phases])
        }
        width = min(spec.capacity, spec.phases + 1)  # a run has no more versions than phases
        wide_cap = _largest_lag(model, width) if width > WIDEST else 0
    except (NotImplementedError, UserError):
        bound = None if spec.demand is None else model.bound(spec.demand)
        return None if bound is None else ExpectedLag(None, bound, None)
    if spec.capacity <= WIDEST:  # under a wider buffer, models are asked about a narrower one than theirs
        distributions = {
            phase: validate_probabilities(model, phase, capacity, answer) for phase, answer in distributions.items()
        }
    full_lags, run_lags = ([_lags_in(distributions[phase], phase) for phase in x] for x in (full_phases, run_phases))
    cap = max(wide_cap, *map(max, full_lags))
    expected = [0.0 if spec.warm(phase) else _mean(lags) for phase, lags in zip(run_phases, run_lags, strict=True)]
    return ExpectedLag(sum(map(_mean, full_lags)) / len(full_lags), cap, sum(expected) / len(expected))


def _largest_lag(model: LagModel, capacity: int) -> int:
    """Return the largest lag under a full buffer, over as many phases as take only negligible time."""
    largest = versions = 0
    for phase in range(capacity, capacity + min(capacity, 4 * WIDEST)):
        lags = _lags_in(model.probabilities(phase, capacity), phase)
        largest, versions = max(largest, max(lags)), versions + len(lags)
        if largest == capacity - 1 or versions > LOOKS * WIDEST:
            break
    return largest


def _lags_in(probabilities: Mapping[int, float], phase: int) -> dict[int, float]:
    return {phase - version: p for version, p in probabilities.items()}


def validate_probabilities(model: LagModel, phase: int, capacity: int, answer: object) -> dict[int, float]:
    """Return a model's answer of `probabilities`, without versions of probability 0. Raises `UserError` where it is
    not a distribution over the buffer."""
    first, is_sound = held(phase, capacity)[0], False
    if isinstance(answer, Mapping):
        versions, p = np.asarray([*answer]), np.asarray([*answer.values()])
        if (versions.dtype.kind, p.dtype.kind) in (("i", "f"), ("i", "i")) and p.ndim == 1 and p.min() >= 0.0:
            inside = (first <= versions) & (versions <= phase)
            is_sound = bool(inside[p > 0.0].all() and abs(p.sum() - 1.0) <= NEAR_1)
    if not (isinstance(answer, Mapping) and is_sound):
        raise UserError(
            f"LAG={model.text}: probabilities({phase}, {capacity}) returns {shorten(one_line(repr(answer)))}; give "
            f"{{version: probability}} of versions {first} to {phase}, adding up to 1"
        )
    return {int(version): float(p) for version, p in answer.items() if p > 0.0}


def _mean(lags: dict[int, float]) -> float:
    return sum(lag * p for lag, p in lags.items())
