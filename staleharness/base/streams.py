"""Named random streams. Each is a pure function of (seed, name, indices), so nothing has to be checkpointed,
no draw of one can shift another, and runs that differ only in their algorithm share their noise.

Names in use: init, env, assignment, lag, looks, action, minibatch, evaluation, mismatch, warm-start, `pipeline-<part>`,
and of the global generators `global/<stage>`.
"""

from __future__ import annotations

import contextlib
import random
import sys
import zlib
from collections.abc import Iterator

import numpy as np


def stream(seed: int, name: str, *indices: int) -> np.random.Generator:
    """A fresh generator for `name` at `indices` (a phase, an epoch ...)."""
    key = (zlib.crc32(name.encode()), *indices)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))


def integer(seed: int, name: str, *indices: int) -> int:
    """One 31-bit integer from the stream, for libraries that want a seed of their own."""
    return int(stream(seed, name, *indices).integers(2**31))


def seed_global_generators(seed: int, stage: str, *indices: int) -> None:
    """Seed the global generators of Python, NumPy and, once it is loaded, torch (on GPUs, too) from the stream of a
    stage of the run.

    The harness draws from none of them; a plugin, or a library that it calls, may. Each stage (collecting in a phase,
    learning in it, an evaluation ...) begins with the same generators whether or not the run was interrupted before,
    and draws in one stage cannot shift those in another.
    """
    numbers = stream(seed, f"global/{stage}", *indices).integers(2**32, size=3).tolist()
    random.seed(numbers[0])
    np.random.seed(numbers[1])  # noqa: NPY002 (the global generator on purpose)
    if (torch := sys.modules.get("torch")) is not None:  # not imported here: reading results does not need it
        torch.default_generator.manual_seed(numbers[2])
        if torch.backends.cuda.is_built():  # torch remembers the seed where CUDA is not initialised yet
            torch.cuda.manual_seed_all(numbers[2])


@contextlib.contextmanager
def global_generators_restored() -> Iterator[None]:
    """Restore the states of the global generators of Python, NumPy and, where it is loaded, torch at the end."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 (the global generator on purpose)
    with contextlib.ExitStack() as stack:
        if (torch := sys.modules.get("torch")) is not None:
            gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
            stack.enter_context(torch.random.fork_rng(gpus))
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
