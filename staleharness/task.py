"""What an environment plugin answers: which ids it serves, and a vector of environments for one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from .base.plugins import Registry, source_file
from .control.spec import ControlSpec
from .errors import UserError, nearest, shortened
from .lag import parse_lag, stretch_length
from .language.spec import LanguageSpec
from .spec import RunSpec

if TYPE_CHECKING:
    import gymnasium

    from .simulator.phase import Simulated


class Task:
    """A family of environments. A plugin subclasses it and registers the class.

    ids: the environment ids this family lists, with one line each. `find` may accept more than it lists.
    aliases: short names that users may type instead (`Hopper` for `Hopper-v5`).
    """

    name: ClassVar[str] = ""  # the family's name, set by registration
    paper: ClassVar[str] = ""
    ids: ClassVar[dict[str, str]] = {}
    aliases: ClassVar[dict[str, str]] = {}
    fallback: ClassVar[bool] = False  # asked only when no other family knows the id
    settings: ClassVar[type[RunSpec]] = ControlSpec  # what a run of this family is described by
    presets: ClassVar[dict[str, dict[str, Any]]] = {}  # over those of `settings`, by name
    provides: ClassVar[frozenset[str]] = frozenset()  # of `algorithm.NEEDS`, beyond what every task gives

    @classmethod
    def find(cls, env: str) -> str | None:
        """The canonical id for what the user typed, or None when this family does not serve it."""
        known = {
            **{key.lower(): key for key in cls.ids},
            **{key.lower(): id for key, id in cls.aliases.items()},
        }
        return known.get(env.lower())

    @classmethod
    def all_presets(cls) -> dict[str, dict[str, Any]]:
        """Name -> settings; the family's own win over those of its kind."""
        kind = cls.settings.presets
        return {name: {**kind.get(name, {}), **cls.presets.get(name, {})} for name in (*kind, *cls.presets)}

    @classmethod
    def check(cls, spec: RunSpec) -> None:
        """Raise `UserError` for a spec that this family cannot run; called before anything is written."""
        model = parse_lag(spec.lag, spec.capacity)
        if stretch_length(model) is not None and not isinstance(spec, LanguageSpec):
            raise UserError(
                f"LAG={spec.lag} changes weights inside a completion; {spec.env} has none, give uniform"
            )

    @classmethod
    def identified(cls, spec: RunSpec) -> RunSpec:
        """The spec as it enters the run's id; a family adds what the words of the spec do not pin down."""
        return spec

    def make(self, env: str, num_envs: int, threads: int) -> gymnasium.vector.VectorEnv:
        """`num_envs` copies of `env`, auto-reset DISABLED: `step` returns the true next observation, and the
        caller resets finished environments with `reset(options={"reset_mask": done})`.

        Both spaces are Boxes: observations [num_envs, obs_dim], actions [num_envs, act_dim]. A vector that also
        has `get_state() -> dict[str, array]` and `set_state(dict)` (see `Restorable`) makes resumed runs
        bit-identical; without them the harness replays the actions since each environment's last reset.
        """
        raise NotImplementedError(f"{type(self).__name__} must define make(env, num_envs, threads)")


ENVS: Registry[type[Task]] = Registry("envs")


def all_families() -> list[type[Task]]:
    """The registered families, sorted by name. Raises `UserError` where two claim one id or alias, in any case."""
    families = [ENVS[name] for name in ENVS]
    claims: dict[str, type[Task]] = {}
    for family in families:
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
    raise UserError(f"no environment is called {shortened(env)!r}; {nearest(env, known)}")


def simulation_of(spec: RunSpec, folder: Path = Path()) -> Simulated:
    """The simulation of this kind of run; a language run loads transformers, and what its spec names from `folder`."""
    if isinstance(spec, LanguageSpec):
        from .language.simulation import LanguageSimulation

        return LanguageSimulation(spec, folder)
    if isinstance(spec, ControlSpec):
        from .control.simulation import Simulation

        return Simulation(spec)
    from .chain.simulation import ChainSimulation
    from .chain.spec import ChainSpec

    assert isinstance(spec, ChainSpec)
    return ChainSimulation(spec)
