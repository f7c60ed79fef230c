"""Base class, registry and notation of lag models, which decide the policy version of each row.

The version of the policy at the start of phase t is t, and the buffer holds the newest K of them. A model maps a `Draw`
to an `Assignment`, both plain data; equal draws give equal assignments.

`geometric[decay=0.7]` is in short `geometric:0.7` (the first option), `sync[every=8,of=uniform]` `uniform/sync:8`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .base.options import Options, build_choice, canonical_text, parse_choice_of, text_by_content, values_before
from .base.options import option as option
from .base.parsing import split_at_last_slash
from .base.plugins import Registry
from .base.streams import stream
from .errors import UserError, nearest, one_line, shorten
from .rollout_schedule import MAX_ROWS, Demand, Schedule
from .rollout_schedule_checks import make_schedule
from .spec import RunSpec

LEDGER = ("dropped", "waited", "in_flight", "in_queue")
"""Names of the counts that an `Assignment` may have: rows dropped, held back (`waited`), in flight and queued."""

DRAWN = "drawn in each phase"
"""Family name of the models that draw versions."""


def held(phase: int, capacity: int) -> range:
    """Return the versions in a buffer of `capacity` when those of `phase` are assigned."""
    return range(max(0, phase + 1 - capacity), phase + 1)


@dataclass(frozen=True)
class Draw:
    """Request for the versions of `slots` rows of one phase."""

    phase: int
    """The newest version."""

    slots: int
    """Number of rows."""

    capacity: int
    """K, the number of versions that the buffer keeps."""

    length: int = 1
    """Decisions of the longest row."""

    seed: int = 0
    """Seed of the run."""

    key: tuple[int, ...] = ()
    """Key of the random numbers: the run's phase, and the number of the draw in that phase."""

    @property
    def held(self) -> range:
        """Versions that may be assigned."""
        return held(self.phase, self.capacity)

    def generator(self) -> np.random.Generator:
        """Return a fresh generator of this draw's random numbers, the same at each call."""
        return stream(self.seed, "assignment", *self.key)


@dataclass(frozen=True)
class Assignment:
    """Versions of the rows of one phase."""

    versions: NDArray[np.int64]
    """[slots, segments], versions in the buffer; non-decreasing along a row."""

    every: int | None = None
    """Decisions per segment; None: a row has one segment and keeps its version."""

    ledger: Mapping[str, int] = field(default_factory=dict)
    """Counts of rows by the names in `LEDGER`."""

    @property
    def starts(self) -> NDArray[np.int64]:
        """Version [slots] that each row begins with."""
        return self.versions[:, 0]


def keep(versions: NDArray[np.int64]) -> Assignment:
    """Return an assignment in which rows keep the version [slots] that they begin with, a whole number each."""
    array = np.asarray(versions)
    if array.ndim != 1 or array.dtype.kind not in "biuf" or (array % 1 != 0).any():  # a fraction would be truncated
        raise UserError(f"keep takes a whole number for each row, not {shorten(one_line(repr(versions)))}")
    return Assignment(array.astype(np.int64)[:, None])


@dataclass(frozen=True)
class LagModel(Options):
    """Decides which past version of the policy produces each row of a phase.

    Subclass it as a frozen dataclass. The fields are its options; one without a default is required, and the first is
    set by the short form `name:value`. `option(default, least=0)` declares an option with bounds. A model implements
    `assign` (versions drawn in every phase) or `schedule` (the run planned at once); with both, it defines `drawn`.
    """

    paper: ClassVar[str] = ""
    """Source of the model: authors, year, identifier."""

    family: ClassVar[str] = ""
    """Heading in `staleharness list`. Empty: chosen by whether the model draws."""

    real: ClassVar[bool] = False
    """Versions come from actors running in real time, so neither `assign` nor `schedule` is called."""

    within_rows: ClassVar[bool] = False
    """The policy may change in the middle of a row. Only some kinds of task support that."""

    longest: ClassVar[str] = ""
    """Hint in the error line where the buffer is smaller than the model's largest lag."""

    def __post_init__(self) -> None:
        super().__post_init__()
        text = getattr(self, "of", "")  # of `parts`; one model has one text, and a file in it an absolute path
        if text and type(self).parts is LagModel.parts and text != self.hyper_parameters().get("of"):
            object.__setattr__(self, "of", read_lag(text).text)

    @classmethod
    def check_class(cls, where: str) -> None:
        super().check_class(where)
        for key, before in values_before(cls).items():
            if cls.hyper_parameters()[key] != before:
                raise UserError(f"{where}: the default of {key} must equal before={before!r}, which a lag's text omits")
        hooks = {x for x in ("assign", "schedule", "online") if getattr(cls, x) is not getattr(LagModel, x)}
        if not (hooks or cls.real) or (hooks >= {"assign", "schedule"} and cls.drawn is LagModel.drawn):
            number = "both assign(self, draw) and" if hooks else "neither assign(self, draw) nor"
            remedy = "; leave one out, or define drawn" if hooks else ""
            raise UserError(f"{where} defines {number} schedule(self, demand){remedy}")

    def assign(self, draw: Draw) -> Assignment:
        """Return a version in `draw.held` for each of the `draw.slots` rows.

        Must be deterministic: equal draws give equal assignments. Take random numbers from `draw.generator()`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define assign(draw)")

    def schedule(self, demand: Demand) -> Schedule:
        """Return the rows of a whole run, from a pipeline or a recording: instead of `assign`, or beside it with
        `drawn`."""
        raise NotImplementedError(f"{type(self).__name__} draws its versions in each phase")

    @property
    def online(self) -> bool:
        """True where the schedule follows from the lengths of the run's own rows, phase by phase."""
        return False

    @property
    def drawn(self) -> bool:
        """True where versions are drawn in each phase; if not, the model has a `schedule`, or is `real` or `online`."""
        return type(self).schedule is LagModel.schedule and not self.real

    @property
    def identity(self) -> str:
        """Text of the model in run ids: `text`, with the digest of a file in place of its name."""
        return text_by_content(self, self.parts()[1:])

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        """Return {version: probability that a row of `phase` begins with it}, without versions of probability 0."""
        raise NotImplementedError(f"{type(self).__name__} must define probabilities(phase, capacity)")

    def bound(self, demand: Demand) -> int | None:
        """Return the bound, in phases, of the model's pipeline rules on lag; late rows can be older. None: no bound."""
        return None

    def oldest(self, phase: int) -> int:
        """Return the oldest version that an actor may act with, even in the middle of an episode."""
        return 0

    def at(self, capacity: int) -> LagModel:
        """Return the model for a buffer of `capacity`: another one where its options depend on the capacity."""
        return self

    def check(self, capacity: int) -> None:
        """Raise `UserError` where the model cannot work with a buffer of `capacity`."""

    def parts(self) -> tuple[LagModel, ...]:
        """Return the model and the models that it wraps: that of its option `of`, if it has one."""
        return (self, *(read_lag(text).parts() if (text := getattr(self, "of", "")) else ()))

    def require_buffer(self, versions: int, capacity: int) -> None:
        """Raise `UserError` where a buffer of `capacity` holds fewer than `versions`; for `check`."""
        if versions > capacity:
            raise UserError(
                f"LAG={self.text} needs a buffer of at least K={versions}; K={capacity} holds lags 0 to {capacity - 1}"
            )

    @property
    def text(self) -> str:
        """Canonical text, which enters run ids."""
        return canonical_text(self)

    @classmethod
    def title(cls) -> str:
        return f"LAG={cls.name}"

    @classmethod
    def listed_under(cls) -> str:
        draws = cls.schedule is LagModel.schedule and not cls.real
        return cls.family or (DRAWN if draws else "recorded, or in real time")

    @classmethod
    def hyper_parameter_types(cls) -> dict[str, Any]:
        """Return {name: type} of the options; those that can only be given by name come last."""
        hints = super().hyper_parameter_types()
        return {f.name: hints[f.name] for f in sorted(fields(cls), key=lambda f: f.kw_only is True)}


class DrawnLag(LagModel):
    """Draws the lag of each row from one distribution, cut off where the buffer ends: P(lag = j) ∝ `weight`."""

    def weight(self, lag: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the weights [n], not all 0, of the lags 0, 1, ... n − 1 in phases."""
        raise NotImplementedError(f"{type(self).__name__} must define weight(lag)")

    def assign(self, draw: Draw) -> Assignment:
        share = self._shares(len(draw.held))
        return keep(draw.phase - draw.generator().choice(len(share), size=draw.slots, p=share))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        share = self._shares(len(held(phase, capacity))).tolist()
        return {phase - lag: p for lag, p in enumerate(share) if p > 0.0}

    def _shares(self, versions: int) -> NDArray[np.float64]:
        weight = np.asarray(self.weight(np.arange(versions, dtype=np.float64)), dtype=np.float64)
        if weight.shape != (versions,) or not (np.isfinite(weight).all() and weight.min() >= 0.0 < weight.max()):
            raise UserError(
                f"LAG={self.text}: weight gives {shorten(one_line(str(weight)))} for {versions} lags; give a finite "
                "number of each, none below 0 and not all 0"
            )
        return np.asarray(weight / weight.sum())


LAGS: Registry[type[LagModel]] = Registry("lags", LagModel)


def read_lag(text: str) -> LagModel:
    """Parse `name`, `name:value`, `name[option=value,...]`, or `inner/wrapper...`, where the wrapper has an option
    `of` (`uniform/cap:4`). Raises `UserError`."""
    inside, last = split_at_last_slash(text)
    where = f"LAG={shorten(text)}"
    if inside and (wrapper := parse_choice_of(last, LAGS, "LAG")) and "of" in wrapper[0].hyper_parameter_types():
        return build_choice(wrapper[0], {**wrapper[1], "of": inside}, where, wrapper[0].title())
    if (choice := parse_choice_of(text, LAGS, "LAG")) is None:
        name = re.split(r"[:\[/]", text)[0]
        if "," in re.sub(r"\[[^]]*\]?", "", text):
            remedy = "ALGO='ppo_clip[lag=oldest],ppo_clip[lag=uniform]'"
            raise UserError(f"LAG={shorten(text)!r}: one lag model at a time; for several in one sweep, {remedy}")
        raise UserError(f"LAG={shorten(text)!r} is not a lag model; {nearest(name, LAGS)}")
    return build_choice(*choice, where, choice[0].title())


def parse_lag(text: str, capacity: int) -> LagModel:
    """Parse a lag model and check that it can work with a buffer of `capacity`. Raises `UserError`."""
    model = read_lag(text).at(capacity)
    if not isinstance(model, LagModel):  # from a plugin
        raise UserError(f"LAG={shorten(text)}: at({capacity}) returns {shorten(repr(model))}, not a lag model")
    _check(model, model.identity, capacity)
    return model


@functools.lru_cache(maxsize=256)  # once for all runs of a study: some models go through every phase and version
def _check(model: LagModel, identity: str, capacity: int) -> None:
    model.check(capacity)


@functools.lru_cache(maxsize=4)
def cached_schedule(model: LagModel, identity: str, demand: Demand) -> Schedule:
    """Return the schedule of a model; `identity`, the model's own, is part of the cache key."""
    return make_schedule(model.schedule, demand, f"LAG={shorten(model.text)}")


def schedule_of(spec: RunSpec) -> Schedule | None:
    """Return the checked schedule of a whole run; None if its lag model plans none. Raises `UserError`."""
    model = parse_lag(spec.lag, spec.capacity)
    if model.drawn or model.real or model.online:
        return None
    if spec.demand is None:
        raise UserError(f"LAG={model.text} plans whole runs, which {spec.env} does not support; give uniform")
    if (rows := spec.demand.phases * spec.demand.groups * spec.demand.rows) > MAX_ROWS:
        raise UserError(f"{model.title()} plans at most {MAX_ROWS:,} rows; this run has {rows:,}; give fewer STEPS")
    schedule = cached_schedule(model, model.identity, spec.demand).with_synchronous_start(spec.fill_phases)
    schedule.check_capacity(spec.capacity, f"LAG={shorten(model.text)}", model.longest)
    return schedule
