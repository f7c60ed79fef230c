"""How long things may take, as the environment says."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from ..errors import UserError, shorten


@dataclass(frozen=True)
class Limits:
    """In seconds."""

    checkpoint: float = 30.0  # between two checkpoints: a killed run loses about this
    stall: float = 3600.0  # without a phase; then a run is ended. It is said after half of it


def from_environment() -> Limits:
    """`$STALEHARNESS_CHECKPOINT_SECONDS` and `$STALEHARNESS_STALL_SECONDS`. Raises `UserError`."""
    usual = Limits()
    stall = _seconds("STALL", usual.stall)
    if not stall:
        raise UserError("STALEHARNESS_STALL_SECONDS=0 would end every run at once; give more, or inf for no limit")
    return Limits(_seconds("CHECKPOINT", usual.checkpoint), stall)


def _seconds(what: str, usual: float) -> float:
    name = f"STALEHARNESS_{what}_SECONDS"
    text = os.environ.get(name, "")
    try:
        seconds = float(text) if text else usual
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise UserError(f"{name}={shorten(text)!r} is not a number of seconds")
    return seconds
