"""Ray cluster: connection, resources of a run, and checks that its machines can execute runs."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.cancellation import STOP_SIGNALS, signal_handlers
from ..base.files import tree_digest, write_bytes
from ..base.system_info import HOME, OVERRIDES
from ..errors import UserError, shorten
from ..store.locks_and_leases import PROBE
from .runner_interface import ResourceRequest, usable_cores

ADDRESS = "RAY_ADDRESS"
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # Ray's switch: if off, Ray listens on this machine only
ANSWER = 10.0  # seconds for a cluster to answer
DEFAULT_MEMORY = 10**9  # bytes of a run without similar ones: three times those of one on Hopper
STORE = 80_000_000  # bytes of Ray's object store, which holds messages only


@dataclass(frozen=True)
class RunResources:
    """Resources of a machine that one run takes."""

    cores: int
    gpu: float  # of one; 0: none
    memory: int  # bytes

    def __str__(self) -> str:
        parts = [f"{self.cores} cores" if self.cores > 1 else "1 core"]
        parts += [f"{self.gpu:g} of a GPU"] if self.gpu else []
        parts += [f"{self.memory / 1e9:.2g} GB"]
        return ", ".join(parts)

    def fit(self, machine: Mapping[str, float]) -> int:
        """Return how many runs fit on a machine with these resources."""
        rooms = [machine.get("CPU", 0.0) / self.cores]
        if self.gpu:  # a run uses one GPU, not shares of several
            rooms.append(int(1 / self.gpu + 1e-6) * int(machine.get("GPU", 0.0)))
        rooms.append(machine.get("memory", 0.0) / self.memory)
        return int(min(rooms))

    def actor_options(self, share: int, nodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Return Ray's options for an actor that takes the place of `share` runs, or as many as fit on any machine."""
        share = min(share, max((self.fit(node["Resources"]) for node in nodes if node["Alive"]), default=1) or 1)
        options: dict[str, float] = {"num_cpus": self.cores * share, "memory": self.memory * share}
        if self.gpu:
            options["num_gpus"] = min(1.0, self.gpu * share)
        return options


def resources(request: ResourceRequest) -> RunResources:
    """Return the resources of one run: those requested, those that similar stored runs took, or those of a small
    run."""
    gpu = 1.0 / (request.runs_per_gpu or 1) if request.device != "cpu" else 0.0
    return RunResources(request.threads, gpu, request.memory or DEFAULT_MEMORY)


def address_from_environment() -> str:
    """Return `$RAY_ADDRESS`, or `local`. Raises `UserError` if it is not an address."""
    address = os.environ.get(ADDRESS, "") or "local"
    if address in ("local", "auto"):
        return address
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise UserError(f"{ADDRESS}={shorten(address)!r} is not an address; give host:port of the head, or auto")
    return address


def connect(request: ResourceRequest) -> bool:
    """Connect this process to the cluster, or start one for it alone; return False if it was connected already.

    Raises `UserError`.
    """
    address = address_from_environment()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # otherwise Ray warns of a future change
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address == "local" or address.startswith(("127.", "localhost:", "[::1]:")):
        os.environ.setdefault(LOOPBACK, "0")
    import ray

    if ray.is_initialized():
        return False
    options: dict[str, Any] = {}
    if address == "local":
        cores = max(usable_cores(), (request.jobs or 0) * request.threads)
        options = {"num_cpus": cores, "object_store_memory": STORE}
    elif address != "auto":
        _reach(address)
    try:
        # Ray would replace our handlers; processes that it starts here outlive a closed terminal, like the sweep, which
        # has to leave checkpoints
        handlers: dict[int, Any] = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        with signal_handlers({**handlers, signal.SIGHUP: signal.SIG_IGN}):
            ray.init(
                address,
                include_dashboard=False if options else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **options,
            )
    except (OSError, RuntimeError, ValueError, TimeoutError) as error:
        line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"RUNNER=ray: no cluster can be used ({ADDRESS}={address}): {line}") from error
    return True


def _reach(address: str) -> None:
    """Raise `UserError` if nothing answers: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {ADDRESS}={address} ({error})") from error


def runtime_environment() -> dict[str, Any]:
    """Return Ray's runtime environment: the path of this checkout, which all machines have to see; empty if the package
    is installed."""
    if not (HOME / "pyproject.toml").is_file():
        return {}
    paths = [str(HOME), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {"env_vars": {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}}


VISIBLE = 10.0  # seconds within which a file of another machine must be visible
# Variables that change the results or speed of a run, or where it finds models: the values of the sweep count.
PASSED_PREFIXES = (
    *"BLIS_ CUBLAS_ GOTO_ HF_ KMP_ MKL_ MUJOCO_ NUMEXPR_ NVIDIA_TF32_ OMP_ OPENBLAS_ PYTORCH_ STALEHARNESS_".split(),
    *"TOKENIZERS_ TORCH_ TRANSFORMERS_ VECLIB_".split(),
    *OVERRIDES,
)


def check_machine(probe: str) -> tuple[bool, str]:
    """Return whether the machine on which this is called sees a file, and the digest of the package there."""
    return is_visible(Path(probe)), tree_digest(HOME / "staleharness")


def machine_problem(sees_probe: bool, code: str, root: Path) -> str:
    """Describe why a machine with these results of `check_machine` cannot take part; empty if it can."""
    if not sees_probe:
        return f"does not see OUT={root}; give a folder that all machines have under this name"
    if code != tree_digest(HOME / "staleharness"):
        return f"has another version of staleharness than {HOME}; install the same one on all machines"
    return ""


@contextlib.contextmanager
def probe_file(root: Path) -> Iterator[Path]:
    """Create a file with a unique name for the duration of a check. After a kill, the next sweep removes it."""
    path = root / f"{PROBE}.{secrets.token_hex(4)}"
    write_bytes(path, b"")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def run_environment() -> dict[str, str]:
    """Return the environment variables of this process that runs depend on."""
    return {name: value for name, value in os.environ.items() if name.startswith(PASSED_PREFIXES)}


def is_visible(path: Path) -> bool:
    """Return whether this machine sees the file within `VISIBLE` seconds."""
    deadline = time.monotonic() + VISIBLE
    while not path.is_file():
        if time.monotonic() > deadline:
            return False
        os.listdir(existing := next(folder for folder in path.parents if folder.is_dir()))  # refreshes the cache
        time.sleep(0.2 if existing == path.parent else 1.0)
    return True
