"""Leases: held by a living process with the recorded start time, whose token is in the file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from raising import raising
from sweeping import environment

from staleharness.base.files import read_json_object
from staleharness.errors import UserError
from staleharness.store import locks_and_leases
from staleharness.store.locks_and_leases import Lease, hold_lease, is_alive, seems_alive
from staleharness.store.store import Store


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(locks_and_leases, "BEAT", 0.02)
    return tmp_path / "lease"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    store.open_for_writing()
    return store


def test_a_lease_lives_with_its_holder_and_leaves_nothing(path: Path) -> None:
    with hold_lease(path) as lease:
        assert is_alive(path) and seems_alive(path) and not lease.lost
        assert read_json_object(path)["pid"] == os.getpid()
    assert not path.exists() and not is_alive(path)


def test_a_lease_taken_by_another_process_is_lost(path: Path) -> None:
    with contextlib.ExitStack() as theirs:
        with hold_lease(path) as first:
            second = theirs.enter_context(hold_lease(path))
            assert first.lost and not second.lost
            first.beat()  # into what is no longer there
            assert read_json_object(path)["token"] == second.holder["token"]
        assert read_json_object(path)["token"] == second.holder["token"] and not second.lost
    assert not path.exists() and first.lost and second.lost


def test_a_lease_that_cannot_be_read_for_a_moment_is_not_lost(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file server that stutters would end a sweep as taken over, and every run of it."""
    with hold_lease(path) as lease:
        for errors in (OSError(errno.EIO, "of a network"), ValueError("half a file")):

            def read(path: Path, error: Exception = errors) -> None:
                raise error

            with monkeypatch.context() as patch:
                patch.setattr(locks_and_leases, "read_json", read)
                assert not lease.lost
        path.unlink()
        assert lease.lost


def test_a_later_process_of_the_same_number_holds_nothing(path: Path) -> None:
    lease = Lease(path)
    path.write_text(json.dumps({**read_json_object(path), "born": "1"}))
    assert not is_alive(path) and not seems_alive(path)
    os.close(lease._file)


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="only /proc tells a zombie from a process")
def test_a_lease_of_this_machine_lives_as_long_as_its_process(path: Path) -> None:
    text = """
import pathlib, sys, time
from staleharness.base.files import read_json_object
from staleharness.store.locks_and_leases import Lease
Lease(pathlib.Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""
    words = [sys.executable, "-c", text, str(path)]
    holder = subprocess.Popen(words, stdout=subprocess.PIPE, env=environment())
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    assert is_alive(path, patience=0.0) and read_json_object(path)["pid"] == holder.pid
    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and stays a zombie
    assert not is_alive(path, patience=0.0)
    holder.communicate()
    assert not is_alive(path, patience=0.0)


def test_a_lease_of_another_machine_lives_as_long_as_it_beats(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time stamp of the file counts for nothing."""
    here = locks_and_leases._machine()
    with hold_lease(path) as lease:
        monkeypatch.setattr(locks_and_leases, "_machine", lambda: {**here, "host": "another"})
        assert is_alive(path, patience=60.0) and seems_alive(path)
        os.utime(path, (0, 0))
        assert is_alive(path, patience=60.0)
        lease.give_up()
    path.write_text(json.dumps(lease.holder))
    assert not is_alive(path, patience=0.1)


def test_a_folder_is_one_sweep_s_where_there_are_no_locks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", raising(OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))))
    said = f"another sweep .process {os.getpid()} on "
    with store.hold(multi_machine=True), pytest.raises(UserError, match=said), store.hold(multi_machine=True):
        pass
    with store.hold(multi_machine=True) as holding:
        assert holding is not None and not holding.lost
    assert not (store.root / ".lease").exists()


def test_a_lease_that_ends_while_it_is_looked_at_is_one_line(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("staleharness.store.locks_and_leases.is_alive", lambda path: True)
    said = r"another sweep .process unknown on another machine"
    with pytest.raises(UserError, match=said), store.hold():
        pass


def test_a_sweep_of_one_machine_heeds_the_lease_of_another_s(store: Store) -> None:
    with hold_lease(store.root / ".lease"), pytest.raises(UserError, match="another sweep"), store.hold():
        pass
    with store.hold():
        pass
