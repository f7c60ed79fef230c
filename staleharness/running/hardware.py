"""Hardware and software of this machine: cores, GPUs, and the fingerprint of a run."""

from __future__ import annotations

import functools
import os
import platform
import re
from typing import Any

from ..base.machine import LIBRARIES, commit, cpu_model, overrides, package_version
from ..base.version import __version__
from ..errors import UserError
from ..spec import MATHS_VERSION, RunSpec

GPUS = "CUDA_VISIBLE_DEVICES"


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def usable_gpus() -> list[str]:
    """Return the GPUs that this process may use, by the names that `GPUS` takes."""
    if (names := os.environ.get(GPUS)) is not None:
        return [name.strip() for name in names.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def check_device(device: str) -> None:
    """Raise `UserError` unless some machine may have such a device."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise UserError(f"DEVICE={device!r} is unknown; give cpu or cuda")


def check_device_here(device: str) -> None:
    """Raise `UserError` unless torch can use it on this machine."""
    check_device(device)
    if device == "cpu":
        return
    import torch

    if not torch.cuda.is_available():
        raise UserError(f"DEVICE={device}, but torch {torch.__version__} sees no GPU on this machine; give DEVICE=cpu")
    if ":" in device and int(device.partition(":")[2]) >= torch.cuda.device_count():
        raise UserError(
            f"DEVICE={device}, but this machine has {torch.cuda.device_count()} GPU(s), numbered from cuda:0"
        )


@functools.cache
def software() -> dict[str, str | None]:
    """Commit and versions of what this process has loaded. Asking git and the metadata of each package takes a tenth of
    a second, and more in a checkout with changes: once per process, and runs inherit it from their fork server."""
    versions = {name: package_version(name) for name in LIBRARIES}
    return {"commit": commit(), "python": platform.python_version(), **versions}


def fingerprint(spec: RunSpec) -> dict[str, Any]:
    """Return versions, hardware, threads and commit; bits are promised only for equal fingerprints."""
    return {
        "staleharness": __version__,
        "maths": MATHS_VERSION,
        **software(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "threads": spec.threads,
        "device": spec.device,
        **overrides(),
        **spec.toolchain(),
    }


def fingerprint_differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """List differences between two fingerprints that could change bits, as lines `name: a -> b`."""
    relevant = sorted((set(a) | set(b)) - {"commit", "pandas", "pyarrow"})
    return [f"{key}: {a.get(key)} -> {b.get(key)}" for key in relevant if a.get(key) != b.get(key)]
