"""Loads MuJoCo and gymnasium's robots, 0.2 s of each run, before workers fork.

A failed import (a wrong MUJOCO_GL, say) must not end the server that forks; the run that needs the module says so.
"""

import contextlib

with contextlib.suppress(Exception):
    import mujoco.batch  # noqa: F401

    from . import vector  # noqa: F401
