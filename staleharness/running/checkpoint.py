"""Checkpoints: tensors and primitives only, each file whole and self-checking, the newest two kept."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

from ..base.files import write_bytes
from ..base.notes import NOTES

KEEP = 2


def save(folder: Path, phase: int, state: dict[str, Any]) -> None:
    """Write the state before `phase` as `checkpoint-<phase>.pt`, then drop all but the newest two."""
    import torch

    stream = io.BytesIO()
    torch.save(state, stream)  # to memory: a full disk must not leave half a file under the final name
    payload = stream.getvalue()
    write_bytes(folder / f"checkpoint-{phase:08d}.pt", hashlib.sha256(payload).digest() + payload)
    for path in sorted(folder.glob("checkpoint-*.pt"))[:-KEEP]:
        path.unlink()


def load_newest(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that is intact, or None. A damaged one is named on stdout and removed.

    Raises `pickle.UnpicklingError` for a file that is whole but holds more than tensors and primitives.
    """
    import torch

    for path in sorted(folder.glob("checkpoint-*.pt"), reverse=True):
        content = path.read_bytes()
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            NOTES.warning("%s is damaged; going back to the one before it", path.name)
            path.unlink()  # or it would count as one of the newest two
            continue
        state: dict[str, Any] = torch.load(io.BytesIO(content[32:]), weights_only=True)
        return state
    return None


def clear(folder: Path) -> None:
    """Remove all checkpoints, for a run that starts over: later phases would outlive its own."""
    for path in folder.glob("checkpoint-*.pt"):
        path.unlink()
