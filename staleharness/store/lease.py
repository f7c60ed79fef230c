"""Who works on what, where no kernel can tell because several machines share the file system.

A lease is a file with its holder in it, which beats as long as the holder lives. An observer believes what it sees move
and the process table of its own machine; never a time of day, of which every machine has another.

A lease keeps others from doing the same work twice. That nothing is *lost* or *spoilt* by somebody who works on without
one rests on something stronger: on who renames a folder first (`running/takeover.py`).
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

from ..base.files import read_json, write_bytes

BEAT = 2.0  # seconds between two beats
LIFE = 15.0  # seconds without one after which a holder elsewhere counts as dead


class Lease:
    """A lease that is held."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.holder = {**_place(), "pid": os.getpid(), "born": _born(os.getpid()), "token": secrets.token_hex(4)}
        self._beats = 0
        self._over = threading.Event()
        write_bytes(path, self._text())
        self._file = os.open(path, os.O_WRONLY)  # moved away or replaced, it is no longer what others look at

    def _text(self) -> bytes:
        return json.dumps({**self.holder, "beat": f"{self._beats:012}"}).encode()

    def beat(self) -> None:
        """Show that the holder lives."""
        self._beats += 1
        os.pwrite(self._file, self._text(), 0)
        os.fsync(self._file)

    @property
    def lost(self) -> bool:
        """Whether somebody else has taken it, or what it lies in, away. What cannot be read right now, of a network,
        says nothing."""
        try:
            said = read_json(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return True
        except (OSError, ValueError):
            return False
        return not isinstance(said, dict) or bool(said.get("token") != self.holder["token"])

    def keep(self) -> None:
        """Beat until it is given up or lost. To be called in a thread of its own."""
        while not self._over.wait(BEAT):
            with contextlib.suppress(OSError):  # of a network; it may be back for the next
                self.beat()

    def give_up(self) -> None:
        """Beat no more, and remove what is left of it."""
        self._over.set()
        with contextlib.suppress(OSError):
            if read(self.path).get("token") == self.holder["token"]:
                self.path.unlink()


@contextlib.contextmanager
def held(path: Path) -> Iterator[Lease]:
    """Hold a lease in that file, whoever had it before."""
    lease = Lease(path)
    thread = threading.Thread(target=lease.keep, name="lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        lease.give_up()
        thread.join()
        os.close(lease._file)


def read(path: Path) -> dict[str, Any]:
    """What a lease says of its holder: {host, pid, token, beat, ...}; nothing where there is none."""
    try:
        said = read_json(path)
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def living(path: Path, patience: float = LIFE) -> bool:
    """Whether the lease has a living holder. Of this machine that is known at once; elsewhere, it has to beat within
    `patience` seconds."""
    first = read(path)
    if not first or _here(first):
        return _alive(first)
    deadline = time.monotonic() + patience
    while (now := read(path)) == first:
        if time.monotonic() > deadline:
            return False
        time.sleep(min(BEAT / 4, patience / 4))
    return bool(now)


def seems_living(path: Path) -> bool:
    """The same at once and for show alone: elsewhere, the time of the last beat is believed."""
    said = read(path)
    if not said or _here(said):
        return _alive(said)
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime < LIFE
    return False


def _here(said: dict[str, Any]) -> bool:
    return all(said.get(key) == value for key, value in _place().items())


def _alive(said: dict[str, Any]) -> bool:
    return said.get("born") is not None and _born(said.get("pid")) == said["born"]


def _place() -> dict[str, str]:
    """Where a process number means something: a machine since it was started, and there a space of process numbers."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    space = "/proc/self/ns/pid"
    return {
        "host": platform.node(),
        "boot": boot.read_text(encoding="utf-8").strip() if boot.is_file() else "",
        "space": os.readlink(space) if os.path.lexists(space) else "",
    }


def _born(process: Any) -> str | None:
    """What tells a living process from a later one of its number: when it began, where the system says so. None where
    there is no such process, and of a zombie."""
    if not isinstance(process, int):
        return None
    try:
        if Path("/proc/self/stat").is_file():
            said = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            return None if said[0] == "Z" else said[19]
        os.kill(process, 0)
    except PermissionError:
        return ""
    except OSError:
        return None
    return ""
