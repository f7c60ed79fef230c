"""Interface of environment plugins of every kind: their ids, checks of a run's spec, and facts stored with runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from .base.plugins import Registry, source_file
from .errors import UserError, nearest, shorten
from .idle_options import check_options
from .lag import parse_lag, schedule_of
from .mismatch import NONE, read_mismatch
from .spec import RunSpec


class Task:
    """Family of environments, a plugin. Subclass a kind of task (`ControlTask`, `LanguageTask`, `ChainTask`, or one of
    your own) and register the class.

    `kind`, `measures`, `score`, `normalise` and `axes` are stored with every run, for readers of its results.
    """

    name: ClassVar[str] = ""
    """Name of the family, set by registration."""

    paper: ClassVar[str] = ""
    """Source: authors, year, identifier."""

    ids: ClassVar[dict[str, str]] = {}
    """Environment ids of the family, with one line each. `find` may accept others."""

    aliases: ClassVar[dict[str, str]] = {}
    """Short names that users may type instead (`Hopper` for `Hopper-v5`)."""

    fallback: ClassVar[bool] = False
    """True where the family is asked only for ids that no other one serves."""

    kind: ClassVar[str] = ""
    """Name of the kind of task."""

    settings: ClassVar[type[RunSpec]] = RunSpec
    """Class of the runs' specification."""

    measures: ClassVar[dict[str, str]] = {"sampled": "sampled returns", "deterministic": "deterministic returns"}
    """Evaluation modes of a policy, and the measure of each in words."""

    score: ClassVar[str] = "sampled"
    """Default evaluation mode of results."""

    normalise: ClassVar[str] = "minmax"
    """Default scale of results."""

    axes: ClassVar[dict[str, str]] = {}
    """Axes of a sweep beyond those of every kind, and the setting of each."""

    inflight: ClassVar[bool] = False
    """Weights can change inside a row."""

    real_time: ClassVar[bool] = False
    """Actors can run in processes of their own."""

    mismatch: ClassVar[bool] = False
    """A separate copy of the policy can sample (MISMATCH)."""

    paced: ClassVar[bool] = False
    """Rows differ in length, so that a pipeline can derive their times from their lengths (pace=length)."""

    entry_point: ClassVar[str] = ""
    """`module:function` that makes the simulation, imported when a run begins."""

    presets: ClassVar[dict[str, dict[str, Any]]] = {}
    """Presets by name, which override those of `settings`."""

    preload: ClassVar[tuple[str, ...]] = ()
    """Modules that every run loads, imported once before workers fork."""

    provides: ClassVar[frozenset[str]] = frozenset()
    """Needs of algorithms (`algorithm.NEEDS`) that the family meets, beyond those that every task meets."""

    @classmethod
    def check_class(cls, where: str) -> None:
        """Raise `UserError` for a class whose ids cannot be read or found; where: its file and name."""
        example = "{'my-task': 'one line'}"
        for name in ("ids", "aliases"):
            value = getattr(cls, name)
            if not isinstance(value, dict) or not all(isinstance(x, str) for pair in value.items() for x in pair):
                raise UserError(f"{where}: {name} is not a dictionary of strings, such as {example}")
        if cls.kind and not cls.ids and cls.find.__func__ is Task.find.__func__:  # type: ignore[attr-defined]
            raise UserError(f"{where} lists no environment; write ids = {example}")

    @classmethod
    def find(cls, env: str) -> str | None:
        """Return the canonical id for an id as typed, or None if the family does not serve it."""
        names = {**{key.lower(): key for key in cls.ids}, **{key.lower(): id for key, id in cls.aliases.items()}}
        return names.get(env.lower())

    @classmethod
    def all_presets(cls) -> dict[str, dict[str, Any]]:
        """Name -> settings; the family's own win over those of its kind."""
        kind = cls.settings.presets
        return {name: {**kind.get(name, {}), **cls.presets.get(name, {})} for name in (*kind, *cls.presets)}

    @classmethod
    def facts(cls, modes: Iterable[str] | None = None) -> dict[str, Any]:
        """Facts on the kind of task as plain data, part of every run's record.

        modes: evaluation modes of the run, if not all."""
        shown_modes = cls.measures if modes is None else set(modes)
        return {
            "kind": cls.kind,
            "unit": cls.settings.unit,
            "measures": {mode: words for mode, words in cls.measures.items() if mode in shown_modes},
            "score": cls.score,
            "normalise": cls.normalise,
            "axes": dict(cls.axes),
        }

    @classmethod
    def on_this_machine(cls, spec: RunSpec) -> RunSpec:
        """Return the spec as this machine can run it; its files may differ, its results are the same."""
        return spec

    @classmethod
    def check(cls, spec: RunSpec) -> None:
        """Raise `UserError` for a spec that this family cannot run; called before anything is written."""
        if not isinstance(size := spec.steps_per_phase, int) or size < 1:
            raise UserError(f"{spec.env}: steps_per_phase is {size!r}; give a whole number of {spec.unit} above 0")
        if spec.budget_phases < 1:
            raise UserError(f"STEPS={spec.steps} is less than one phase of {spec.env}, {size} {spec.unit}")
        model = parse_lag(spec.lag, spec.capacity)
        check_options(model, spec.demand, spec.capacity)
        if model.drawn and model.within_rows and not cls.inflight:
            raise UserError(f"LAG={spec.lag} changes weights inside a row; {spec.env} cannot, give uniform")
        if model.real and not cls.real_time:
            raise UserError(
                f"LAG={spec.lag} needs actors in their own processes, which {spec.env} does not support; give uniform"
            )
        if model.online and not cls.paced:
            raise UserError(f"LAG={spec.lag}: rows of {spec.env} are all of one length; leave out pace=length")
        if spec.fill_phases and (model.real or model.online):
            raise UserError(
                f"fill_phases={spec.fill_phases} is for lag that is drawn or planned before the run, and "
                f"LAG={spec.lag} follows from the run itself; give fill_phases=0"
            )
        if spec.warm(spec.fill_phases) and not model.drawn:
            raise UserError(
                f"LAG={spec.lag} plans whole runs, and warm_phases is for lag that is drawn; give uniform, or "
                "warm_phases=0"
            )
        if not cls.mismatch and (spec.mismatch != NONE or spec.behaviour != "auto"):
            raise UserError(
                f"MISMATCH={spec.mismatch}, behaviour={spec.behaviour}: in {spec.env} the trainer's own policy "
                "samples; only control and language tasks have a separate sampler"
            )
        models = read_mismatch(spec.mismatch)
        if any(model.raw for model in models) and spec.behaviour != "version":
            raise UserError(
                f"MISMATCH={spec.mismatch}: raw log-probabilities are not those of the distribution "
                "that actions were drawn from, so they cannot serve as μ; give logprobs=processed, or "
                "SET=behaviour=version"
            )
        schedule_of(spec)

    @classmethod
    def unsuitable_method(cls, spec: RunSpec) -> str | None:
        """Return why the method cannot work with the settings of a run, None where it can. A sweep that names no method
        leaves it out, and `check` should raise a `UserError` for one that is named."""
        return None

    @classmethod
    def check_here(cls, spec: RunSpec) -> None:
        """Raise `UserError` for a spec that this machine cannot run, though another might; called before it is started
        here."""

    @classmethod
    def simulation(cls, spec: RunSpec, folder: Path) -> Any:
        """Return the run, phase by phase (`training.loop.Simulation`); relative paths in the spec start at `folder`."""
        if not cls.entry_point:
            raise NotImplementedError(f"{cls.__name__} must define simulation(spec, folder), or entry_point")
        module, _, name = cls.entry_point.partition(":")
        return getattr(import_module(module), name)(spec, cls(), folder)

    @classmethod
    def try_out(cls, env: str) -> None:
        """Raise an error where an id that the family finds but does not list cannot be used."""

    @classmethod
    def completed(cls, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the settings of a sweep, with those that the user left open derived from the others."""
        return settings

    @classmethod
    def identified(cls, spec: RunSpec) -> RunSpec:
        """Return the spec that enters the run's id; a family adds what the spec alone does not determine."""
        return spec


ENVS: Registry[type[Task]] = Registry("envs", Task)


def all_families() -> list[type[Task]]:
    """Return the registered families, sorted by name. Raises `UserError` for a family without a kind, and for an id or
    alias that two families have, whatever its case."""
    families = [ENVS[name] for name in ENVS]
    claims: dict[str, type[Task]] = {}
    for family in families:
        if not family.kind:
            raise UserError(
                f"{family.__qualname__} in {source_file(family)} does not define `kind`, the kind of its task; "
                "gymnasium environments extend ControlTask (staleharness.control.task), which has one"
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
    """Return the canonical id and the family that serves it. Raises `UserError` with the nearest known id."""
    families = sorted(all_families(), key=lambda family: family.fallback)
    for family in families:
        if (id := family.find(env)) is not None:
            owners = [f for f in families if not f.fallback and f.find(id) is not None] if family.fallback else []
            return id, (owners or [family])[0]  # as in a worker, which gets the id
    names = {id for family in families for id in (*family.ids, *family.aliases)}
    other = " (one of another package: ENV=module:Id-v0)" if re.search(r"-v\d+$", env) and ":" not in env else ""
    hints = "; ".join([f"{nearest(env, names)}{other}", *ENVS.broken])
    raise UserError(f"no environment is called {shorten(env)!r}; {hints}")
