"""Lag models: which past versions a phase's rows are made with. One file of `lags/` is one model.

The version of the policy at the start of phase t is t, and the buffer holds the newest K of them. A model is asked with
a `Draw` and answers with an `Assignment`; both are plain data, and the answer is a function of the question alone.

Written like an algorithm, `geometric[decay=0.7]`, or short: `geometric:0.7` gives the first option, and
`uniform/sync:8` is `sync[every=8,of=uniform]`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from .base.options import Options, changed, values_before
from .base.parsing import build, format_value, parse_assignments, parse_value
from .base.plugins import Registry, source_hash
from .base.streams import stream
from .errors import UserError, nearest, shorten
from .schedule import MOST_ROWS, Demand, Schedule
from .spec import RunSpec

LEDGER = ("dropped", "waited", "in_flight", "in_queue")  # what may have become of rows that are not trained on
DRAWN = "drawn in each phase"  # a family of models
WITHOUT_HASH = frozenset("uniform oldest fixed geometric sync inflight".split())  # see `hashed`


def held(phase: int, capacity: int) -> range:
    """The versions in a buffer of `capacity` when those of `phase` are assigned."""
    return range(max(0, phase + 1 - capacity), phase + 1)


@dataclass(frozen=True)
class Draw:
    """What a lag model is asked: versions for `slots` rows of one phase."""

    phase: int  # the newest version
    slots: int
    capacity: int  # K, versions that the buffer keeps
    length: int = 1  # decisions of the longest row
    seed: int = 0  # of the run
    key: tuple[int, ...] = ()  # names the noise: the run's phase, and which draw of that phase it is

    @property
    def held(self) -> range:
        """The versions that may be assigned."""
        return held(self.phase, self.capacity)

    def generator(self) -> np.random.Generator:
        """The random numbers of this draw, from their beginning each time it is called."""
        return stream(self.seed, "assignment", *self.key)


@dataclass(frozen=True)
class Assignment:
    """What a lag model answers."""

    versions: NDArray[np.int64]  # [slots, stretches], of the buffer; not decreasing along a row
    every: int | None = None  # decisions of a stretch; None: a row has one stretch and keeps its version
    ledger: Mapping[str, int] = field(default_factory=dict)  # rows, by the names of `LEDGER`; a drawn model has none

    @property
    def starts(self) -> NDArray[np.int64]:
        """[slots], the version that each row begins with."""
        return self.versions[:, 0]


def keep(versions: NDArray[np.int64]) -> Assignment:
    """Rows that keep the version [slots] they begin with."""
    return Assignment(np.asarray(versions, dtype=np.int64)[:, None])


@dataclass(frozen=True)
class LagModel(Options):
    """A rule that assigns versions. Subclass as a frozen dataclass; its fields are the model's options, and one
    without a default has to be given. The first is the one that `name:value` gives."""

    paper: ClassVar[str] = ""  # what is modelled: authors, year, identifier
    family: ClassVar[str] = ""  # under which it is listed; "": by whether it draws
    real: ClassVar[bool] = False  # versions come from processes that really run at once; nobody is asked for any
    within_rows: ClassVar[bool] = False  # whether weights change inside a row, which only some tasks can do
    longest: ClassVar[str] = ""  # what is to be known where the buffer is too small for its longest lag, in words

    @classmethod
    def check_class(cls, where: str) -> None:
        super().check_class(where)
        for key, before in values_before(cls).items():
            if cls.hyper_parameters()[key] != before:
                raise UserError(f"{where}: the default of {key} must equal before={before!r}, which a lag's text omits")

    def assign(self, draw: Draw) -> Assignment:
        """Versions of `draw.held` for each of `draw.slots` rows. The same draw has the same answer."""
        raise NotImplementedError(f"{type(self).__name__} must define assign(draw)")

    def schedule(self, demand: Demand) -> Schedule:
        """The whole run's rows, of a pipeline or a recording. A model that defines this is not asked to `assign`."""
        raise NotImplementedError(f"{type(self).__name__} draws its versions in each phase")

    @property
    def online(self) -> bool:
        """Whether its schedule follows from how long the run's own rows are, phase by phase."""
        return False

    @property
    def drawn(self) -> bool:
        """Whether versions are drawn in each phase; else there is a `schedule`, or the model is `real` or `online`."""
        return type(self).schedule is LagModel.schedule and not self.real

    @property
    def identity(self) -> str:
        """What stands for it in run ids: `text`, unless that names a file whose content counts."""
        return self.text

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        """Version -> probability that a row of `phase` begins with it; versions of probability 0 are left out."""
        raise NotImplementedError(f"{type(self).__name__} must define probabilities(phase, capacity)")

    def bound(self, demand: Demand) -> int | None:
        """The lag in phases at which a rule of its pipeline stops; None where it has none."""
        return None

    def oldest(self, phase: int) -> int:
        """The version that even an actor in the middle of an episode may not be behind."""
        return 0

    def at(self, capacity: int) -> LagModel:
        """The model as it stands with a buffer of `capacity`: another one where options follow from that."""
        return self

    def check(self, capacity: int) -> None:
        """Raise `UserError` where the model cannot work with a buffer of `capacity`."""

    def parts(self) -> tuple[LagModel, ...]:
        """The models that it is made of, itself first."""
        return (self,)

    def require_buffer(self, versions: int, capacity: int) -> None:
        """Raise `UserError` where a buffer of `capacity` holds fewer than `versions`; for `check`."""
        if versions > capacity:
            raise UserError(
                f"LAG={self.text} needs a buffer of at least K={versions}; K={capacity} holds lags 0 to {capacity - 1}"
            )

    @property
    def text(self) -> str:
        """The one way of writing it, which enters run ids: options in order, without defaults, a first one short."""
        default = self.hyper_parameters()
        given = {name: getattr(self, name) for name in self.hyper_parameter_types()}
        said = {k: v for k, v in given.items() if k not in default or default[k] != v}
        if list(said) == list(given)[:1] and said:
            (value,) = said.values()
            return f"{self.name}:{value if isinstance(value, str) else format_value(value)}"
        inside = ",".join(f"{key}={format_value(value)}" for key, value in said.items())
        return f"{self.name}[{inside}]" if said else self.name

    @classmethod
    def title(cls) -> str:
        return f"LAG={cls.name}"

    @classmethod
    def listed_under(cls) -> str:
        drawn = cls.schedule is LagModel.schedule and not cls.real
        return cls.family or (DRAWN if drawn else "recorded, or in real time")

    @classmethod
    def hyper_parameter_types(cls) -> dict[str, Any]:
        """As of any plugin; options that can only be given by name stand behind the model's own."""
        hints = super().hyper_parameter_types()
        return {f.name: hints[f.name] for f in sorted(fields(cls), key=lambda f: f.kw_only is True)}

    @classmethod
    def usage(cls) -> str:
        """`fixed:<lag>`: how it is written, with the options that have to be given."""
        names = list(cls.hyper_parameter_types())
        needed = [f.name for f in fields(cls) if f.default is MISSING]
        if needed == names[:1] and needed:
            return f"{cls.name}:<{needed[0]}>"
        return f"{cls.name}[{','.join(f'{name}=…' for name in needed)}]" if needed else cls.name


class DrawnLag(LagModel):
    """A lag drawn anew for each row from one distribution, cut off where the buffer ends: P(lag = j) ∝ `weight`."""

    def weight(self, lag: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights [n], not all 0, of the lags 0, 1, ... n − 1 in phases."""
        raise NotImplementedError(f"{type(self).__name__} must define weight(lag)")

    def assign(self, draw: Draw) -> Assignment:
        share = self._shares(len(draw.held))
        return keep(draw.phase - draw.generator().choice(len(share), size=draw.slots, p=share))

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        share = self._shares(len(held(phase, capacity))).tolist()
        return {phase - lag: p for lag, p in enumerate(share) if p > 0.0}

    def _shares(self, versions: int) -> NDArray[np.float64]:
        weight = self.weight(np.arange(versions, dtype=np.float64))
        share: NDArray[np.float64] = weight / weight.sum()
        return share


LAGS: Registry[type[LagModel]] = Registry("lags", LagModel)


def read_lag(text: str) -> LagModel:
    """`name`, `name:value`, `name[option=value,...]`, or `model/name...` where a model has an option `of`.

    Raises `UserError`.
    """
    before, behind = _last_slash(text)
    if before and (around := _split(behind)) and "of" in LAGS[around[0]].hyper_parameter_types():
        return _made(text, around[0], {**around[1], "of": before})
    if (found := _split(text)) is None:
        name = re.split(r"[:\[/]", text)[0]
        raise UserError(f"LAG={shorten(text)!r} is not a lag model; {nearest(name, LAGS)}")
    return _made(text, *found)


def parse_lag(text: str, capacity: int) -> LagModel:
    """The lag model, which can work with a buffer of `capacity`. Raises `UserError`."""
    model = read_lag(text).at(capacity)
    _check(model, capacity)
    return model


@functools.lru_cache(maxsize=256)
def _check(model: LagModel, capacity: int) -> None:
    """Asked once for all runs of a study: some models look at every phase, and at every version in each."""
    model.check(capacity)


@functools.lru_cache(maxsize=4)
def planned(model: LagModel, identity: str, demand: Demand) -> Schedule:
    """The schedule that a model answers; `identity` is its own, by which what was asked before is known again."""
    return model.schedule(demand)


def schedule_of(spec: RunSpec) -> Schedule | None:
    """The rows of a whole run, checked; None where its lag model plans none. Raises `UserError`."""
    model = parse_lag(spec.lag, spec.capacity)
    if model.drawn or model.real or model.online:
        return None
    if spec.demand is None:
        raise UserError(f"LAG={model.text} plans whole runs, which {spec.env} cannot be made by; give uniform")
    rows = spec.demand.phases * spec.demand.groups * spec.demand.rows
    if rows > MOST_ROWS:
        raise UserError(
            f"LAG={shorten(model.text)} plans whole runs, of at most {MOST_ROWS:,} rows; this one has {rows:,}; "
            "give fewer STEPS"
        )
    schedule = planned(model, model.identity, spec.demand)
    schedule.check(spec.demand, spec.capacity, f"LAG={shorten(model.text)}", model.longest)
    return schedule


def hashed(text: str) -> list[type[LagModel]]:
    """The models in a lag model whose files are part of a run's id: all but the six whose runs are older than lag
    models in files, for which `MATHS_VERSION` stands."""
    return [type(model) for model in _hashed(text)]


def _hashed(text: str) -> list[LagModel]:
    return [model for model in read_lag(text).parts() if model.name not in WITHOUT_HASH]


def identity(text: str) -> str:
    """What stands for a lag model in run ids; empty where that is its text."""
    model = read_lag(text)
    return "" if model.identity == model.text else model.identity


def file_hash(text: str) -> str:
    """Hash of the files that a lag model is written in, so that editing one expires its runs; empty where none
    counts."""
    return "+".join(source_hash(type(model), changed(model)) for model in _hashed(text))


def _last_slash(text: str) -> tuple[str, str]:
    """What stands before the last `/` that is in no brackets, empty where there is none, and what stands behind it."""
    depth = 0
    for i in range(len(text) - 1, -1, -1):
        depth += (text[i] == "]") - (text[i] == "[")
        if text[i] == "/" and depth == 0:
            return text[:i], text[i + 1 :]
    return "", text


def _split(text: str) -> tuple[str, dict[str, Any]] | None:
    """(name, options), or None where it is not the name of a model with options behind it."""
    match = re.fullmatch(r"([\w.-]+)(?:\[(.*)\]|:(.+))?", text)
    if match is None or match[1] not in LAGS:
        return None
    name, inside, value = match.groups()
    types = LAGS[name].hyper_parameter_types()
    if value is None:
        return name, parse_assignments(inside or "", f"LAG={shorten(text)!r}")
    if not types:
        raise UserError(f"LAG={shorten(text)}: {name} has no options")
    first, hint = next(iter(types.items()))
    return name, {first: value if hint is str else parse_value(value)}


def _made(text: str, name: str, options: Mapping[str, Any]) -> LagModel:
    cls = LAGS[name]
    known = cls.hyper_parameter_types()
    missing = [key for key in known if key not in {**cls.hyper_parameters(), **options}]
    if missing and set(options) <= set(known):
        raise UserError(f"LAG={shorten(text)}: {missing[0]} is missing; give {cls.usage()}")
    return build(cls, options, cls.title())
