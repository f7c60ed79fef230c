"""A place for runs on some machine of a cluster: a local pool of one process, and what its owner asks of it."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..base.files import tree_digest, write_bytes
from ..base.machine import HOME, OVERRIDES
from ..base.processes import nothing_of_main
from ..errors import UserError
from ..store.locks import PROBE
from .job import Job
from .runner import Event
from .runners.local import LocalPool

LISTENING = 0.5  # seconds to listen to the worker before saying that there is nothing new
VISIBLE = 10.0  # seconds after which a file of another machine is to be seen here, if ever
# Variables that change what a run computes, how fast, or where it finds models: those of the sweep count.
OURS = (
    "BLIS_",
    "CUBLAS_",
    "GOTO_",
    "HF_",
    "KMP_",
    "MKL_",
    "MUJOCO_",
    "NUMEXPR_",
    "NVIDIA_TF32_",
    "OMP_",
    "OPENBLAS_",
    "PYTORCH_",
    "STALEHARNESS_",
    "TOKENIZERS_",
    "TORCH_",
    "TRANSFORMERS_",
    "VECLIB_",
    *OVERRIDES,
)


class Place:
    """What it answers is plain data; it can be anywhere."""

    def __init__(self, probe: str, modules: Sequence[str], variables: Mapping[str, str]) -> None:
        if not _visible(Path(probe)):
            raise UserError(f"the machine does not see {Path(probe).parent}")
        for name in environment():
            del os.environ[name]  # Ray, for one, sets thread counts of its own
        os.environ.update(variables)
        self._pool = LocalPool(1)
        self._pool.open(modules, Path(probe).parent)

    def ready(self) -> list[Event]:
        """That it is there."""
        return []

    def start(self, job: Job) -> list[Event]:
        """Begin to carry out a run."""
        with nothing_of_main():
            self._pool.start(job)
        return []

    def hear(self) -> list[Event]:
        """What has happened since the last call; waits a little for something to happen."""
        return list(self._pool.poll(LISTENING))

    def ask_to_stop(self, run_id: str) -> None:
        with contextlib.suppress(KeyError):  # it has ended, and nobody has heard of that yet
            self._pool.ask_to_stop(run_id)

    def kill(self, run_id: str) -> None:
        with contextlib.suppress(KeyError):
            self._pool.kill(run_id)

    def close(self) -> None:
        self._pool.close()


class Seen(NamedTuple):
    """What a machine says of itself."""

    probe: bool
    code: str

    def wrong(self, root: Path) -> str:
        """Why it cannot take part, or nothing."""
        if not self.probe:
            return f"does not see OUT={root}; give a folder that all machines have under this name"
        if self.code != _code():
            return f"has another staleharness installed than the one in {HOME}; install the same on all"
        return ""


def see(probe: str) -> Seen:
    """To be called on the machine in question."""
    return Seen(_visible(Path(probe)), _code())


@contextlib.contextmanager
def probe_file(root: Path) -> Iterator[Path]:
    """A file that no other folder has, for as long as it is needed. What is left of it after a kill, the next sweep
    removes with other torn files."""
    path = root / f"{PROBE}.{secrets.token_hex(4)}"
    write_bytes(path, b"")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def environment() -> dict[str, str]:
    """The variables of this process that runs depend on."""
    return {name: value for name, value in os.environ.items() if name.startswith(OURS)}


def _visible(path: Path) -> bool:
    deadline = time.monotonic() + VISIBLE
    while not path.is_file():
        if time.monotonic() > deadline:
            return False
        os.listdir(existing := next(folder for folder in path.parents if folder.is_dir()))  # asks the server anew
        time.sleep(0.2 if existing == path.parent else 1.0)
    return True


def _code() -> str:
    return tree_digest(HOME / "staleharness")
