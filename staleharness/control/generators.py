"""The states of NumPy generators as plain bytes, so that a checkpoint of arrays can hold them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

State = dict[str, Any]  # what `Generator.bit_generator.state` reads and writes


def state_of(generator: np.random.Generator | None) -> State | None:
    """The generator's state; None for None. Raises `TypeError` for other than PCG64, gymnasium's kind."""
    if generator is None:
        return None
    if not isinstance(generator.bit_generator, np.random.PCG64):
        raise TypeError(f"only PCG64 generators can be written down, not {type(generator.bit_generator).__name__}")
    return dict(generator.bit_generator.state)


def generator_from(state: State | None) -> np.random.Generator | None:
    """A new generator in that state; None for None."""
    if state is None:
        return None
    bits = np.random.PCG64(0)
    bits.state = state  # type: ignore[assignment]  # numpy types it more narrowly than it documents it
    return np.random.Generator(bits)


def pack(states: Sequence[State | None]) -> NDArray[np.uint8]:
    """The states as JSON (the integers have 128 bits, more than any array type) in an array of bytes."""
    return np.frombuffer(json.dumps(list(states)).encode(), dtype=np.uint8).copy()


def unpack(packed: NDArray[np.uint8]) -> list[State | None]:
    """The inverse of `pack`."""
    states: list[State | None] = json.loads(np.asarray(packed, dtype=np.uint8).tobytes())
    return states
