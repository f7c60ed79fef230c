"""One sweep at a time in a results folder: by a lock of the kernel's, and where machines share the folder, a lease."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from ..base.files import forget_torn, try_lock
from ..errors import UserError
from . import lease

MARKER = "staleharness.json"
LEASE, PROBE = ".lease", ".probe"
HERE = (MARKER, LEASE, PROBE[1:], f"{PROBE}.*")  # what a sweep writes beside its folders; a probe is torn as it is


@contextlib.contextmanager
def sole_sweep(root: Path, shared: bool) -> Iterator[lease.Lease | None]:
    """Hold the folder for one sweep; with a lease, too, where other machines may want it. Raises `UserError`."""
    handle, path = os.open(root / ".lock", os.O_RDWR | os.O_CREAT), root / LEASE
    try:
        if not _locked(handle, shared):
            raise _in_use(root, os.read(handle, 64).decode(errors="replace").strip() or "unknown")
        if lease.living(path):
            raise _in_use(root, "{pid} on {host}".format(**lease.read(path)))
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        forget_torn(root, *HERE)
        with lease.held(path) if shared else contextlib.nullcontext() as holding:
            yield holding
    finally:
        os.close(handle)


def _locked(handle: int, shared: bool) -> bool:
    try:
        return try_lock(handle)
    except UserError:
        if shared:  # the lease will do
            return True
        raise


def _in_use(root: Path, whom: str) -> UserError:
    text = "another sweep (process {}) is writing to OUT={}; wait for it or give another OUT"
    return UserError(text.format(whom, root))
