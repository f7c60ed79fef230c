"""What may not be read is not damaged: nothing is made again, and nothing is to be written over."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from results_helper import write_run

from staleharness.base.parsing import read_toml
from staleharness.errors import UserError
from staleharness.store.store import MARKER, Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    write_run(tmp_path / "results", "spo", 0, phases=2)
    return Store(tmp_path / "results")


def close(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let no file of that name be read, whoever asks."""
    usual = Path.read_bytes

    def read(path: Path) -> Any:
        if path.name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return usual(path)

    monkeypatch.setattr(Path, "read_bytes", read)


def test_a_run_that_may_not_be_read_stays_where_it_is(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = store.read_all()
    close(monkeypatch, "run.json")
    assert not store.is_done(run.id)
    with pytest.raises(UserError, match=r"run\.json cannot be read \(Permission denied\), so it may be a good"):
        store.put_damaged_aside(run.id)
    monkeypatch.undo()
    assert store.is_done(run.id) and not (store.root / "damaged").exists()


def test_a_mark_that_may_not_be_read_is_not_to_be_written_over(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    close(monkeypatch, MARKER)
    with pytest.raises(UserError, match=rf"{MARKER} cannot be read: Permission denied$"):
        store.check_readable()


def test_a_study_of_an_editor_that_begins_with_a_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b'\xef\xbb\xbfenv = "bit-chain"\r\n')
    assert read_toml(tmp_path / "a.toml") == {"env": "bit-chain"}
