"""Named random streams. Each is a pure function of (seed, name, indices), so nothing has to be checkpointed,
no draw of one can shift another, and runs that differ only in their algorithm share their noise.

Names in use: init, env, assignment, action, minibatch, evaluation.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, name: str, *indices: int) -> np.random.Generator:
    """A fresh generator for `name` at `indices` (a phase, an epoch ...)."""
    key = (zlib.crc32(name.encode()), *indices)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def integer(seed: int, name: str, *indices: int) -> int:
    """One 31-bit integer from the stream, for libraries that want a seed of their own."""
    return int(stream(seed, name, *indices).integers(2**31))
