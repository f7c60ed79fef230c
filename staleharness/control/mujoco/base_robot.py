"""Observations and rewards of one kind of MuJoCo environment, written for many environments at once.

Imports neither MuJoCo nor gymnasium, so that a plugin that defines formulas loads instantly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Formulas:
    """Observation, reward and termination of one kind of environment, for N environments at once.

    `d` is an MjData with a leading axis: `d.qpos` [N, nq], `d.qvel` [N, nv], `d.ctrl` [N, nu] and the fields
    in `derived`. Equality to the last bit requires the same operations in the same order and precision as
    gymnasium's, which works on one environment at a time.
    """

    derived: tuple[str, ...] = ()  # MjData fields that are read besides the state
    contact_forces: bool = False  # are fields of mj_rnePostConstraint (cfrc_ext, cacc, ...) among them?

    def __init__(self, env: Any) -> None:
        self.env = env  # gymnasium's own environment, unwrapped: its constants are used, private as they are

    def place(self, d: Any) -> Floats:
        """[N, k]: the positions whose change over a step makes the velocity; k = 0 where none is needed."""
        return np.empty((len(d.qpos), 0))

    def observe(self, d: Any) -> Floats:
        """Return the observations [N, observation size]."""
        raise NotImplementedError

    def judge(self, d: Any, velocity: Floats, action: NDArray[Any]) -> tuple[Floats, Bools]:
        """Reward [N] and termination [N] of a step; velocity [N, k] of `place`, action [N, nu] as given."""
        raise NotImplementedError
