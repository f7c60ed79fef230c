"""Modes of torch that belong to the process, and with them to every run in it, whichever plugin changes them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from ..errors import UserError

OF_RUNS = ("threads", "determinism")
"""Modes that a run sets itself."""


@contextlib.contextmanager
def modes_kept(culprit: str) -> Iterator[None]:
    """Restore torch's modes at the end. Raises `UserError` where the code inside has changed one that decides what
    other code computes. The number of threads and determinism are the run's own, and restored silently.

    culprit: the beginning of the error line, `plugin a.py`."""
    before: dict[str, Any] = {}
    if (torch := sys.modules.get("torch")) is not None:
        before = {**_modes(torch), **_own_modes(torch)}
    changes: dict[str, Any] = {}  # what was changed -> what it was changed to
    try:
        yield
    finally:
        if (torch := sys.modules.get("torch")) is not None:
            before = before or _modes_at_start(torch)
            now = {**_modes(torch), **_own_modes(torch)}
            changes = {name: now[name] for name, value in before.items() if now[name] != value}
            for name in changes:
                _set(torch, name, before[name])
    for name in [name for name in changes if name not in OF_RUNS]:
        raise UserError(
            f"{culprit} changes torch's {name} from {_text(before[name])} to {_text(changes[name])}, which would "
            "change what other code computes; leave the default alone and give dtype= or device= to your own tensors"
        )


def _modes(torch: Any) -> dict[str, Any]:
    """Return the modes that no plugin may change, name -> value."""
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "float32 matmul precision": torch.get_float32_matmul_precision(),
        "gradient mode": torch.is_grad_enabled(),
    }


def _own_modes(torch: Any) -> dict[str, Any]:
    return dict(zip(OF_RUNS, (torch.get_num_threads(), torch.get_deterministic_debug_mode()), strict=True))


def _modes_at_start(torch: Any) -> dict[str, Any]:
    """Return the modes with which torch begins, as far as they are alike everywhere."""
    modes = torch.float32, torch.device("cpu"), "highest", True
    return dict(zip(_modes(torch), modes, strict=True))


def _set(torch: Any, name: str, value: Any) -> None:
    setters = {
        "default dtype": torch.set_default_dtype,
        "default device": lambda device: torch.set_default_device(None if device.type == "cpu" else device),
        "float32 matmul precision": torch.set_float32_matmul_precision,
        "gradient mode": torch.set_grad_enabled,
        "threads": torch.set_num_threads,
        "determinism": torch.set_deterministic_debug_mode,
    }
    setters[name](value)


def _text(value: object) -> str:
    return str(value).removeprefix("torch.")
