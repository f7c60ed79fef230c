"""What a control plugin answers: a vector of environments for one of its ids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..spec import RunSpec
from ..task import Task
from .spec import ControlSpec

if TYPE_CHECKING:
    import gymnasium
    import numpy as np
    from numpy.typing import NDArray

    from ..simulator.loop import Simulation


class ControlTask(Task):
    """A family of gymnasium environments: vectors of real numbers as observations, and as actions or a few choices."""

    kind: ClassVar[str] = "control"
    settings: ClassVar[type[RunSpec]] = ControlSpec
    provides: ClassVar[frozenset[str]] = frozenset({"closed_form"})

    preload: ClassVar[tuple[str, ...]] = ("staleharness.control.simulation", "gymnasium")

    @classmethod
    def simulation(cls, spec: RunSpec, folder: Path) -> Simulation[Any]:
        from .simulation import ControlSimulation

        assert isinstance(spec, ControlSpec)
        return ControlSimulation(spec, cls())

    @classmethod
    def try_out(cls, env: str) -> None:
        cls().make(env, 1, 1).close()

    def make(self, env: str, num_envs: int, threads: int) -> gymnasium.vector.VectorEnv:
        """`num_envs` copies of `env`, auto-reset DISABLED: `step` returns the true next observation, and the
        caller resets finished environments with `reset(options={"reset_mask": done})`.

        Observations are a Box [num_envs, obs_dim]; actions a Box [num_envs, act_dim], or Discrete. A vector that also
        has `get_state() -> dict[str, array]` and `set_state(dict)` (see `Restorable`) makes resumed runs
        bit-identical; without them the harness replays the actions since each environment's last reset.
        """
        raise NotImplementedError(f"{type(self).__name__} must define make(env, num_envs, threads)")


class Restorable(Protocol):
    """A vector of environments whose complete state can be read and written back, bit for bit."""

    def get_state(self) -> dict[str, NDArray[np.generic]]: ...

    def set_state(self, state: dict[str, Any]) -> None: ...
