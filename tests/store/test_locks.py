"""Leases: held by a living process with the recorded start time, whose token is in the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from staleharness.store.locks import Lease, hold_lease, is_alive, read_lease, seems_alive


def _change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**read_lease(path), **changes}))


def test_a_lease_lives_with_its_holder_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    with hold_lease(path) as lease:
        assert is_alive(path) and seems_alive(path) and not lease.lost
        assert read_lease(path)["pid"] == os.getpid()
    assert not path.exists() and not is_alive(path)


def test_a_lease_taken_by_another_process_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    with hold_lease(path) as lease:
        (tmp_path / "other").write_text(json.dumps({**read_lease(path), "token": "theirs"}))
        (tmp_path / "other").rename(path)
        assert lease.lost
    assert read_lease(path)["token"] == "theirs"
    path.unlink()
    assert lease.lost  # it is gone altogether


def test_a_later_process_of_the_same_number_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    lease = Lease(path)
    _change(path, born="1")
    assert not is_alive(path) and not seems_alive(path)
    os.close(lease._file)


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="only /proc tells a zombie from a process")
def test_a_zombie_process_holds_no_lease(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    text = f"import pathlib; from staleharness.store.locks import Lease; Lease(pathlib.Path({str(path)!r}))"
    process = subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.DEVNULL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    assert read_lease(path)["pid"] == process.pid
    assert not is_alive(path)
    process.wait()
