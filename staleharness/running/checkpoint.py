"""Checkpoints: tensors and primitives only, each file whole and self-checking, the newest two kept."""

from __future__ import annotations

import hashlib
import io
import pickle
from collections.abc import Callable
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


def load_newest(
    folder: Path, refused: Callable[[dict[str, Any]], str | None] = lambda state: None
) -> dict[str, Any] | None:
    """The newest checkpoint that is intact and not refused, or None. Any other is named, with what is wrong with it,
    and removed, or it would count as one of the newest two.

    `refused` says what is wrong with a checkpoint's content, or None.
    """
    for path in sorted(folder.glob("checkpoint-*.pt"), reverse=True):
        state, wrong = _read(path)
        if wrong is None:
            wrong = refused(state)
        if wrong is None:
            return state
        NOTES.warning("%s %s; going back to the one before it", path.name, wrong)
        path.unlink()
    return None


def _read(path: Path) -> tuple[dict[str, Any], str | None]:
    """(content, None), or what is wrong."""
    import torch

    content = path.read_bytes()
    if hashlib.sha256(content[32:]).digest() != content[:32]:
        return {}, "is damaged"
    try:
        state = torch.load(io.BytesIO(content[32:]), weights_only=True)
    except pickle.UnpicklingError:
        return {}, "holds more than tensors and numbers, and such a file is never loaded"
    except Exception as error:  # whatever a file that somebody made up can bring about in torch
        return {}, f"cannot be read by torch ({type(error).__name__})"
    return (state, None) if isinstance(state, dict) else ({}, "holds no state")


def clear(folder: Path) -> None:
    """Remove all checkpoints, for a run that starts over: later phases would outlive its own."""
    for path in folder.glob("checkpoint-*.pt"):
        path.unlink()
