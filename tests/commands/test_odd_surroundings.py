"""Odd working folders and closed streams cause neither a traceback nor a stray folder."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import Cli
from sweeping import environment

BUNDLE = "results/reference/horizon_weights"


@pytest.mark.parametrize("verb", ["status", "report"])
def test_a_folder_that_is_gone_is_one_line(verb: str, tmp_path: Path, call: Cli) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    try:
        code, _, errors = call(verb)
    finally:
        os.chdir(tmp_path)
    assert code == 2 and "the current folder no longer exists; change to one that does" in errors


def test_closed_streams_are_no_error(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "staleharness", "completion", "bash"]
    code = "import os, sys; os.closerange(1, int(sys.argv[1])); os.execv(sys.argv[2], sys.argv[2:])"
    for end in ("2", "3"):  # standard output, and both
        whole = [sys.executable, "-c", code, end, *words]
        done = subprocess.run(whole, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr


def test_a_folder_name_that_is_not_utf8_is_refused_at_once(call: Cli, tmp_path: Path) -> None:
    """Tables could be written there and not be read again."""
    out = str(tmp_path / "r\udcff")
    code, _, errors = call("sweep", "--env", "bit-chain", "--steps", "2", "--out", out)
    assert code == 2 and "is not a path in UTF-8" in errors and not os.path.lexists(out)


def test_a_locale_without_utf8_is_named(call: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python then cannot decode the bytes of a sound name."""
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    code, _, errors = call("status", "--out", str(tmp_path / "r\udcc3\udcbc"))
    assert code == 2 and "rename" not in errors
    assert "this locale is not UTF-8 but ascii; set PYTHONUTF8=1, or a UTF-8 locale such as LC_ALL=C.UTF-8" in errors


def test_a_report_on_published_runs_hides_no_folder(call: Cli) -> None:
    for verb in (["report"], ["status"], ["export", "csv"]):
        code, _, errors = call(*verb, "--out", BUNDLE)
        assert code == 2 and f"`staleharness unpack {BUNDLE} FOLDER` makes a folder of its runs" in errors
    assert not Path("results").exists()
    assert call("config", "0", "--out", BUNDLE)[2].count("begin with '0'") == 1  # it is still found


def test_seeds_are_separated_by_blanks_as_other_lists_are(call: Cli) -> None:
    words = "sweep --env bit-chain --algo spo --dry --list --seeds".split()
    assert call(*words, "3 5")[1] == call(*words, "3,5")[1]


def test_figures_of_bundles_that_are_not_there_write_no_page(call: Cli) -> None:
    code, _, errors = call("figures", "--bundles", "results/referense", "--out", "gallery")
    assert code == 2 and "BUNDLES=results/referense is not a folder" in errors
    assert not Path("gallery").exists()


@pytest.mark.parametrize(
    "error, code, line",
    [
        (MemoryError(), 1, "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, "out of memory"),
        (OSError(errno.EMFILE, "Too many open files"), 2, "too many open files"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 1, "out of memory"),
    ],
    ids=repr,
)
def test_a_command_that_lacks_a_resource_is_one_line(
    call: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, line: str
) -> None:
    def fail(command: object) -> int:
        raise error

    monkeypatch.setattr("staleharness.cli.parse", lambda words: (SimpleNamespace(handle=fail), None))
    result, _, errors = call("list")
    assert result == code and errors.count("\n") == 1
    assert f"staleharness: {line}; run fewer things at a time (JOBS=1)" in errors
