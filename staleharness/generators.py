"""NumPy generators as plain bytes, so that a checkpoint of arrays can hold them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pack_generators(generators: Sequence[np.random.Generator | None]) -> NDArray[np.uint8]:
    """The states of PCG64 generators (gymnasium's kind) as JSON in a uint8 array; None stays None.

    Raises `TypeError` for another kind of bit generator, whose state JSON cannot hold exactly.
    """
    states: list[dict[str, Any] | None] = []
    for generator in generators:
        if generator is not None and not isinstance(generator.bit_generator, np.random.PCG64):
            raise TypeError(f"only PCG64 generators can be packed, not {type(generator.bit_generator).__name__}")
        states.append(None if generator is None else dict(generator.bit_generator.state))
    return np.frombuffer(json.dumps(states).encode(), dtype=np.uint8).copy()


def unpack_generators(packed: NDArray[np.uint8]) -> list[np.random.Generator | None]:
    """New generators in the states that `pack_generators` wrote down."""
    states = json.loads(np.asarray(packed, dtype=np.uint8).tobytes())
    return [None if state is None else _generator(state) for state in states]


def _generator(state: dict[str, Any]) -> np.random.Generator:
    bits = np.random.PCG64()
    bits.state = state
    return np.random.Generator(bits)
