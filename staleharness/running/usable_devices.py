"""Cores and GPUs that this process may use, and checks of a DEVICE."""

from __future__ import annotations

import os
import re

from ..errors import UserError

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
