"""Cache of what is built once per machine."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from pathlib import Path

import pytest
from raising import raising

from staleharness.base.artifact_cache import CACHE_VARIABLE, build_once, check_cache
from staleharness.errors import UserError


def test_a_cache_without_file_locks_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(fcntl, "flock", raising(OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))))
    with pytest.raises(UserError, match="does not support locks") as error:
        build_once("models", "key", Path.mkdir)
    assert "results" not in str(error.value)


def test_a_folder_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    folder = build_once("models", "key", Path.mkdir)
    assert folder.is_dir() and build_once("models", "key", raising(AssertionError("built twice"))) == folder


@pytest.mark.parametrize(("number", "named"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_a_full_disk_of_the_cache_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, named: bool
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        build_once("models", "key", raising(OSError(number, os.strerror(number))))
    assert (str(tmp_path / "models" / "key") in str(caught.value)) == named


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_cache_that_cannot_be_written_names_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    words = "the cache ~/.cache/staleharness cannot be written .*; set STALEHARNESS_CACHE to another folder"
    with monkeypatch.context() as patch, pytest.raises(UserError, match=words):
        patch.setattr(Path, "mkdir", raising(OSError(number, os.strerror(number))))
        build_once("models", "key", Path.mkdir)
    check_cache()
    (tmp_path / ".cache").write_text("a file")
    with pytest.raises(UserError, match=words):
        check_cache()


def test_a_cache_with_content_may_be_on_a_disk_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(tempfile, "mkdtemp", raising(OSError(errno.EROFS, os.strerror(errno.EROFS))))
    with pytest.raises(UserError, match="Read-only file system"):
        check_cache()
    (tmp_path / "models").mkdir()
    check_cache()


def test_what_is_built_is_read_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    folder = build_once("models", "key", Path.mkdir)
    monkeypatch.setattr(Path, "open", raising(OSError(errno.EROFS, os.strerror(errno.EROFS))))
    assert build_once("models", "key", raising(AssertionError("built twice"))) == folder
