"""What a control plugin answers: a vector of gymnasium environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import gymnasium
    import numpy as np
    from numpy.typing import NDArray


def action_bounds(env: gymnasium.vector.VectorEnv) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Lowest and highest action [act_dim]; what the environment is given is clipped to them."""
    space: Any = env.single_action_space
    return space.low, space.high


class Restorable(Protocol):
    """A vector of environments whose complete state can be read and written back, bit for bit."""

    def get_state(self) -> dict[str, NDArray[np.generic]]: ...

    def set_state(self, state: dict[str, Any]) -> None: ...
