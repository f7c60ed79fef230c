"""Disk errors: a full disk names the file, and an unreadable run is not damaged."""

from __future__ import annotations

import errno
import functools
import os
import resource
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from raising import raising
from results_helper import write_run
from sweeping import environment

from staleharness.base.files import atomic_write
from staleharness.base.parsing import read_toml
from staleharness.commands.shared.command_line_parser import verbs
from staleharness.errors import UserError
from staleharness.store.bundle_writer import pack
from staleharness.store.store import MARKER, Store

WORDS = {
    "unpack": ["unpack", "bundle", "there"],
    "pack": ["pack", "results", "there"],
    "export": ["export", "csv", "--out=results", "--to=there"],
    "report": ["report", "--out=results"],
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_run(tmp_path / "results", "spo", 0, phases=20)
    pack(str(tmp_path / "results"), str(tmp_path / "bundle"), None)
    return tmp_path


@pytest.mark.parametrize("verb", WORDS)
@pytest.mark.long
def test_a_verb_names_the_file(place: Path, verb: str) -> None:
    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))

    # -B: bytecode would be cut to 300 bytes, and stay
    words = [sys.executable, "-B", "-m", "staleharness", *WORDS[verb]]
    done = subprocess.run(words, cwd=place, env=environment(), preexec_fn=small, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    folder = "reports" if verb == "report" else "there"
    assert folder in done.stderr and "File too large" in done.stderr
    assert "standard output" not in done.stderr


def test_the_name_is_part_of_the_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="left") as error, atomic_write(tmp_path / "a") as stream:
        stream.write(b"1")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert error.value.filename == str(tmp_path / "a") and not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_copied_is_one_line(place: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """`reproduce` copies runs that another study has, too."""

    def handle(command: Any) -> int:
        (run,) = Store(place / "results").read_all()
        other = Store(place / "other")
        other.open_for_writing()
        copy = functools.partial(
            shutil.copytree, copy_function=raising(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        )
        monkeypatch.setattr(shutil, "copytree", copy)
        return other.adopt(Store(place / "results"), {run.id: run.label})

    verb = verbs()["list"]
    monkeypatch.setattr("staleharness.cli.parse", lambda words: (replace(verb, handle=handle), None))
    code, _, errors = cli("list")
    assert code == 2 and "No space left on device" in errors and errors.count("\n") == 1


@pytest.fixture
def store(tmp_path: Path) -> Store:
    write_run(tmp_path / "results", "spo", 0, phases=2)
    return Store(tmp_path / "results")


def make_unreadable(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make every read of a file of that name fail."""
    usual = Path.read_bytes

    def read(path: Path) -> Any:
        if path.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return usual(path)

    monkeypatch.setattr(Path, "read_bytes", read)


def test_a_run_that_may_not_be_read_stays_where_it_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = store.read_all()
    make_unreadable(monkeypatch, "run.json")
    assert not store.is_done(run.id)
    with pytest.raises(UserError, match=r"run\.json cannot be read \(Permission denied\), so it may be a good"):
        store.put_damaged_aside(run.id)
    monkeypatch.undo()
    assert store.is_done(run.id) and not (store.root / "damaged").exists()


def test_a_mark_that_may_not_be_read_is_not_to_be_written_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    make_unreadable(monkeypatch, MARKER)
    with pytest.raises(UserError, match=rf"{MARKER} cannot be read: Permission denied$"):
        store.check_readable()


def test_a_study_of_an_editor_that_begins_with_a_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b'\xef\xbb\xbfenv = "bit-chain"\r\n')
    assert read_toml(tmp_path / "a.toml") == {"env": "bit-chain"}
