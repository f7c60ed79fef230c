"""A Ray cluster: how it is reached, what it has, and what a run takes of it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.machine import HOME
from ..errors import UserError, shorten
from .devices import usable_cores
from .runner import Demand

ADDRESS = "RAY_ADDRESS"
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # Ray's switch: where it is off, nothing is heard beyond this machine
ANSWER = 10.0  # seconds for a cluster to answer
USUAL_MEMORY = 10**9  # bytes of a run that nobody knows more of: three times those of one on Hopper
STORE = 80_000_000  # bytes of Ray's object store, through which nothing goes but words


@dataclass(frozen=True)
class Resources:
    """What one run takes of a machine."""

    cores: int
    gpu: float  # of one; 0: none
    memory: int  # bytes

    def __str__(self) -> str:
        parts = [f"{self.cores} cores" if self.cores > 1 else "1 core"]
        parts += [f"{self.gpu:g} of a GPU"] if self.gpu else []
        parts += [f"{self.memory / 1e9:.2g} GB"]
        return ", ".join(parts)

    def fit(self, machine: Mapping[str, float]) -> int:
        """How many runs a machine has room for, by what it has."""
        rooms = [machine.get("CPU", 0.0) / self.cores]
        if self.gpu:  # a run is on one GPU; shares of several make up none
            rooms.append(int(1 / self.gpu + 1e-6) * int(machine.get("GPU", 0.0)))
        rooms.append(machine.get("memory", 0.0) / self.memory)
        return int(min(rooms))

    def of(self, share: int, nodes: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """What an actor asks for that takes the room of `share` runs, or of as many as any machine has."""
        share = min(share, max((self.fit(node["Resources"]) for node in nodes if node["Alive"]), default=1) or 1)
        asked: dict[str, float] = {"num_cpus": self.cores * share, "memory": self.memory * share}
        if self.gpu:
            asked["num_gpus"] = min(1.0, self.gpu * share)
        return asked


def resources(demand: Demand) -> Resources:
    """What one run takes, where it says so; what stored runs took; or what a small one takes."""
    gpu = 1.0 / (demand.runs_per_gpu or 1) if demand.device != "cpu" else 0.0
    return Resources(demand.threads, gpu, demand.memory or USUAL_MEMORY)


def address_from_environment() -> str:
    """`$RAY_ADDRESS`, or `local`. Raises `UserError` where it can be no cluster's."""
    address = os.environ.get(ADDRESS, "") or "local"
    if address in ("local", "auto"):
        return address
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise UserError(f"{ADDRESS}={shorten(address)!r} is not an address; give host:port of the head, or auto")
    return address


def connect(demand: Demand) -> bool:
    """Connect this process to the cluster, or to one that is started here, for itself alone; False where it was
    connected already. Raises `UserError`."""
    address = address_from_environment()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # or it warns of what it will do one day
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if address == "local" or address.startswith(("127.", "localhost:", "[::1]:")):
        os.environ.setdefault(LOOPBACK, "0")
    import ray

    if ray.is_initialized():
        return False
    options: dict[str, Any] = {}
    if address == "local":
        cores = max(usable_cores(), (demand.jobs or 0) * demand.threads)
        options = {"num_cpus": cores, "object_store_memory": STORE}
    elif address != "auto":
        _reach(address)
    try:
        with _own_signals():
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
    """Raise `UserError` where nobody answers: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"no Ray cluster answers at {ADDRESS}={address} ({error})") from error


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Ray puts handlers of its own in the place of ours; and what it starts on this machine outlives a closed terminal,
    as the sweep itself does, which has to leave checkpoints."""
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {name: signal.getsignal(name) for name in names}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def code_path() -> dict[str, Any]:
    """Where workers find this program: in the checkout that it runs from, which all machines have to see; or, where it
    is installed, wherever it is installed there."""
    if not (HOME / "pyproject.toml").is_file():
        return {}
    paths = [str(HOME), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    return {"env_vars": {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}}
