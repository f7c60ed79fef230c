"""What every environment plugin answers, of whatever kind: which ids it serves, and how its runs are read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from .base.plugins import Registry, source_file
from .errors import UserError, nearest, shorten
from .lag import parse_lag, schedule_of
from .spec import RunSpec


class Task:
    """A family of environments. A plugin subclasses a kind of task (`ControlTask`, `LanguageTask`, `ChainTask`, or one
    of its own) and registers the class.

    ids: the environment ids this family lists, with one line each. `find` may accept more than it lists.
    aliases: short names that users may type instead (`Hopper` for `Hopper-v5`).

    A kind says, for whoever reads its results without it (`facts`):
    kind: what the kind is called.
    measures: what each way of scoring a policy is, in words.
    score, normalise: the way, and the scale, that its results are reported in where none is asked for.
    axes: axes of a sweep beyond those that every kind has, and the setting that each stands for.
    """

    name: ClassVar[str] = ""  # the family's name, set by registration
    paper: ClassVar[str] = ""
    ids: ClassVar[dict[str, str]] = {}
    aliases: ClassVar[dict[str, str]] = {}
    fallback: ClassVar[bool] = False  # asked only when no other family knows the id
    kind: ClassVar[str] = ""
    settings: ClassVar[type[RunSpec]] = RunSpec  # what a run of this kind is described by
    measures: ClassVar[dict[str, str]] = {"sampled": "sampled returns", "deterministic": "deterministic returns"}
    score: ClassVar[str] = "sampled"
    normalise: ClassVar[str] = "minmax"
    axes: ClassVar[dict[str, str]] = {}
    inflight: ClassVar[bool] = False  # whether weights can change inside a row
    real_time: ClassVar[bool] = False  # whether actors can be processes of their own
    paced: ClassVar[bool] = False  # whether rows differ in length, so that the time they take can follow from it
    entry_point: ClassVar[str] = ""  # "module:function" that makes the simulation: imported when a run begins
    presets: ClassVar[dict[str, dict[str, Any]]] = {}  # over those of `settings`, by name
    preload: ClassVar[tuple[str, ...]] = ()  # modules that every run loads: imported once, before workers fork
    provides: ClassVar[frozenset[str]] = frozenset()  # of `algorithm.NEEDS`, beyond what every task gives

    @classmethod
    def find(cls, env: str) -> str | None:
        """The canonical id for what the user typed, or None when this family does not serve it."""
        known = {**{key.lower(): key for key in cls.ids}, **{key.lower(): id for key, id in cls.aliases.items()}}
        return known.get(env.lower())

    @classmethod
    def all_presets(cls) -> dict[str, dict[str, Any]]:
        """Name -> settings; the family's own win over those of its kind."""
        kind = cls.settings.presets
        return {name: {**kind.get(name, {}), **cls.presets.get(name, {})} for name in (*kind, *cls.presets)}

    @classmethod
    def facts(cls, ways: Iterable[str] | None = None) -> dict[str, Any]:
        """What the kind of task is, as plain data: part of the record of every run. `ways`: those that a run was
        scored in, if not all."""
        measured = cls.measures if ways is None else set(ways)
        return {
            "kind": cls.kind,
            "unit": cls.settings.unit,
            "measures": {way: words for way, words in cls.measures.items() if way in measured},
            "score": cls.score,
            "normalise": cls.normalise,
            "axes": dict(cls.axes),
        }

    @classmethod
    def check(cls, spec: RunSpec) -> None:
        """Raise `UserError` for a spec that this family cannot run; called before anything is written."""
        model = parse_lag(spec.lag, spec.capacity)
        if model.drawn and model.within_rows and not cls.inflight:
            raise UserError(f"LAG={spec.lag} changes weights inside a completion; {spec.env} has none, give uniform")
        if model.real and not cls.real_time:
            raise UserError(f"LAG={spec.lag} needs actors of their own, which {spec.env} has not; give uniform")
        if model.online and not cls.paced:
            raise UserError(f"LAG={spec.lag}: rows of {spec.env} are all of one length; leave out pace=length")
        if spec.warm(0) and not model.drawn:
            raise UserError(
                f"LAG={spec.lag} plans whole runs, and warm_phases is for lag that is drawn; give uniform, or "
                "warm_phases=0"
            )
        schedule_of(spec)

    @classmethod
    def check_here(cls, spec: RunSpec) -> None:
        """Raise `UserError` for a spec that this machine cannot run, as another one might; asked before it is started
        here."""

    @classmethod
    def simulation(cls, spec: RunSpec, folder: Path) -> Any:
        """The run, phase by phase (`simulator.loop.Simulation`); relative paths in the spec begin at `folder`."""
        if not cls.entry_point:
            raise NotImplementedError(f"{cls.__name__} must define simulation(spec, folder), or entry_point")
        module, _, name = cls.entry_point.partition(":")
        return getattr(import_module(module), name)(spec, cls(), folder)

    @classmethod
    def try_out(cls, env: str) -> None:
        """Raise an error where an id that the family finds, but does not list, cannot be used."""

    @classmethod
    def completed(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings of a sweep with those that follow from others filled in, where the user left them open."""
        return settings

    @classmethod
    def identified(cls, spec: RunSpec) -> RunSpec:
        """The spec as it enters the run's id; a family adds what the words of the spec do not pin down."""
        return spec


ENVS: Registry[type[Task]] = Registry("envs", Task)


def all_families() -> list[type[Task]]:
    """The registered families, sorted by name. Raises `UserError` where one is of no kind, and where two claim one id
    or alias, in any case."""
    families = [ENVS[name] for name in ENVS]
    claims: dict[str, type[Task]] = {}
    for family in families:
        if not family.kind:
            raise UserError(
                f"{family.__qualname__} in {source_file(family)} is of no kind of task: a vector of gymnasium "
                "environments is a ControlTask (staleharness.control.task), another kind says its `kind`"
            )
        for name in (*family.ids, *family.aliases):
            holder = claims.setdefault(name.lower(), family)
            if holder is not family:
                raise UserError(
                    f"the environment {name!r} is claimed twice: {source_file(holder)} and {source_file(family)}; "
                    "rename one of them"
                )
    return families


def find_env(env: str) -> tuple[str, type[Task]]:
    """The canonical id and the family that serves it. Raises `UserError` with the nearest known id."""
    families = sorted(all_families(), key=lambda family: family.fallback)
    for family in families:
        if (found := family.find(env)) is not None:
            return found, family
    known = {id for family in families for id in (*family.ids, *family.aliases)}
    raise UserError(f"no environment is called {shorten(env)!r}; {nearest(env, known)}")
