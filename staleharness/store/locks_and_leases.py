"""Locks on a results folder and leases on work, for processes of one machine and of several.

A lease is a file that names its holder and is rewritten ("beats") as long as the holder lives. An observer trusts the
changes it sees and the process table of its own machine, never a time of day: clocks of machines differ.

A lease keeps others from doing the same work twice. It does not protect results: if a process carries on without its
lease, the first rename of the folder decides (`running/takeover.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..base.files import read_json, read_json_object, remove_temporaries, try_lock, write_bytes
from ..errors import UserError

BEAT = 2.0  # seconds between two beats
LIFE = 15.0  # seconds without a beat after which a holder on another machine counts as dead
MARKER = "staleharness.json"
LEASE, PROBE = ".lease", ".probe"
SWEEP_FILES = (MARKER, LEASE, PROBE[1:], f"{PROBE}.*")  # files of a sweep in the folder; a probe is always temporary


@contextlib.contextmanager
def hold_folder(root: Path, multi_machine: bool) -> Iterator[Lease | FolderLock]:
    """Reserve a results folder for one sweep: by a lock, and by a lease if other machines may want the folder. Yields
    the one by which the sweep can tell that it lost the folder.

    Raises `UserError` if another sweep holds it, or if the lock cannot be opened.
    """
    lock, path = root / ".lock", root / LEASE
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise UserError(f"OUT={root} cannot be written: {error.strerror}: {lock}") from error
    try:
        if not _lock_or_lease(handle, multi_machine):
            raise _in_use(root, os.read(handle, 64).decode(errors="replace").strip() or "unknown")
        if is_alive(path):
            holder = read_json_object(path)  # empty if it has just let go
            raise _in_use(root, f"{holder.get('pid', 'unknown')} on {holder.get('host', 'another machine')}")
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
        remove_temporaries(root, *SWEEP_FILES, age=0.0)
        with hold_lease(path) if multi_machine else contextlib.nullcontext(FolderLock(handle, lock)) as hold:
            yield hold
    finally:
        os.close(handle)


@contextlib.contextmanager
def hold_bundle(path: Path) -> Iterator[None]:
    """Keep other calls on this machine from packing into the same folder, which need not exist yet: a lock on the
    nearest folder above it. Raises `UserError` if another call holds it."""
    parent = next((folder for folder in path.absolute().parents if folder.is_dir()), Path("/"))
    handle = os.open(parent, os.O_RDONLY)
    try:
        if not _lock_or_lease(handle, multi_machine=True):  # a file system without locks: nothing to hold
            raise UserError(f"another call of pack is writing in {parent}; wait for it, or give another TO")
        yield
    finally:
        os.close(handle)


def _lock_or_lease(handle: int, multi_machine: bool) -> bool:
    try:
        return try_lock(handle)
    except UserError:
        if multi_machine:  # the lease suffices
            return True
        raise


def _in_use(root: Path, process: str) -> UserError:
    return UserError(f"another sweep (process {process}) is writing to OUT={root}; wait for it or give another OUT")


class FolderLock:
    """Lock of this process on a file in a folder."""

    def __init__(self, handle: int, path: Path) -> None:
        self.handle, self.path = handle, path.absolute()

    @property
    def lost(self) -> bool:
        """True if the folder was moved, removed or replaced; False while the file cannot be read."""
        try:
            return not os.path.samestat(os.fstat(self.handle), self.path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False


class Lease:
    """Lease of this process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.holder = {**_machine(), "pid": os.getpid(), "born": _birth(os.getpid()), "token": secrets.token_hex(4)}
        self._beats = 0
        self._over = threading.Event()
        write_bytes(path, self._text())
        self._file = os.open(path, os.O_WRONLY)  # if moved away or replaced, others no longer read it

    def _text(self) -> bytes:
        return json.dumps({**self.holder, "beat": f"{self._beats:012}"}).encode()

    def beat(self) -> None:
        """Show that the holder lives."""
        self._beats += 1
        os.pwrite(self._file, self._text(), 0)
        os.fsync(self._file)

    @property
    def lost(self) -> bool:
        """True if another process took the lease, or its folder, away; False while the file cannot be read."""
        try:
            content = read_json(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except (OSError, ValueError):
            return False
        return not isinstance(content, dict) or bool(content.get("token") != self.holder["token"])

    def keep(self) -> None:
        """Beat until the lease is given up or lost; runs in a thread of its own."""
        while not self._over.wait(BEAT):
            with contextlib.suppress(OSError):  # a network failure may be over at the next beat
                self.beat()

    def give_up(self) -> None:
        """Stop beating and remove the file."""
        self._over.set()
        with contextlib.suppress(OSError):
            if read_json_object(self.path).get("token") == self.holder["token"]:
                self.path.unlink()


@contextlib.contextmanager
def hold_lease(path: Path) -> Iterator[Lease]:
    """Hold a lease in that file, whoever held it before."""
    lease = Lease(path)
    thread = threading.Thread(target=lease.keep, name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        lease.give_up()
        thread.join()
        os.close(lease._file)


def is_alive(path: Path, patience: float = LIFE) -> bool:
    """Return whether the holder of a lease lives. On this machine the process table decides; on another, the lease has
    to beat within `patience` seconds."""
    first = read_json_object(path)
    if not first or _on_this_machine(first):
        return _process_lives(first)
    deadline = time.monotonic() + patience
    while (now := read_json_object(path)) == first:
        if time.monotonic() > deadline:
            return False
        time.sleep(min(BEAT / 4, patience / 4))
    return bool(now)


def seems_alive(path: Path) -> bool:
    """Guess `is_alive` without waiting, for display: for another machine, the time of the last beat decides."""
    content = read_json_object(path)
    if not content or _on_this_machine(content):
        return _process_lives(content)
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime < LIFE
    return False


def _on_this_machine(content: dict[str, Any]) -> bool:
    return all(content.get(key) == value for key, value in _machine().items())


def _process_lives(content: dict[str, Any]) -> bool:
    return content.get("born") is not None and _birth(content.get("pid")) == content["born"]


def _machine() -> dict[str, str]:
    """Identify the space in which a process number is unique: host, boot and namespace of process numbers."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    space = "/proc/self/ns/pid"
    return {
        "host": platform.node(),
        "boot": boot.read_text(encoding="utf-8").strip() if boot.is_file() else "",
        "space": os.readlink(space) if os.path.lexists(space) else "",
    }


def _birth(process: Any) -> str | None:
    """Return the start time of a process, which tells it from a later one with the same number; empty if the
    system does not say, None for a zombie or no process."""
    if not isinstance(process, int):
        return None
    try:
        if Path("/proc/self/stat").is_file():
            fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            return None if fields[0] == "Z" else fields[19]
        os.kill(process, 0)
    except PermissionError:
        return ""
    except OSError:
        return None
    return ""
