"""Results folders come from others, too: whatever one says, and wherever its links lead, nothing outside it is
written or removed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from results_helper import write_run

from staleharness import cli
from staleharness.base.files import make_subfolder
from staleharness.errors import UserError
from staleharness.pages import report
from staleharness.store.store import Store

Verb = Callable[..., tuple[int, str]]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    write_run(tmp_path / "results", "spo", 0, phases=2)
    return tmp_path / "results"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the user's, of names that a report or an export has."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("index.html", "table.json", "metrics.csv", "mine.txt"):
        (folder / name).write_text("mine")
    return folder


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], short_report: None) -> Verb:
    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["staleharness", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        return int(stop.value.code or 0), capsys.readouterr().err

    return call


def is_untouched(folder: Path) -> bool:
    return {p.name: p.read_text() for p in folder.iterdir()} == dict.fromkeys(
        ("index.html", "table.json", "metrics.csv", "mine.txt"), "mine"
    )


@pytest.mark.long
def test_a_report_removes_nothing_outside_its_folder(results: Path, outside: Path, verb: Verb) -> None:
    folder = results / "reports" / "report-all"
    (folder / "folder").mkdir(parents=True)
    (folder / "old.png").write_text("")
    ways_out = [str(outside / "mine.txt"), "../../../elsewhere/index.html"]
    for names in (ways_out, ["folder", "old.png"]):
        sha = hashlib.sha256(b"").hexdigest()  # of old.png
        cache = {"key": "x", "files": dict.fromkeys(names, sha)}
        (folder / "report.json").write_text(json.dumps(cache))
        assert verb("report", "--out", str(results)) == (0, "")
        assert is_untouched(outside) and (folder / "folder").is_dir()
        assert (folder / "old.png").exists() == (names is ways_out)  # what an earlier report wrote is removed


ODD = ["", ".", "..", "a\0b", "x" * 300, ".hidden", "/etc/passwd", "../x", "a/b", r"..\x", 1]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_report_of_odd_names_is_none(tmp_path: Path, odd: str | int) -> None:
    cache: dict[str, Any] = {"key": "x", "files": [["index.html", "0"]]}
    (tmp_path / "report.json").write_text(json.dumps(cache))
    assert report._manifest(tmp_path) == {"key": "x", "files": {"index.html": "0"}}
    cache["files"].append([odd, "0"])
    (tmp_path / "report.json").write_text(json.dumps(cache))
    assert report._manifest(tmp_path) == {"key": "", "files": {}}


@pytest.mark.parametrize("where", ["reports", "reports/report-all", "reports/report-all/inside"])
def test_no_report_is_written_through_a_link(results: Path, outside: Path, verb: Verb, where: str) -> None:
    (results / where).parent.mkdir(parents=True, exist_ok=True)
    (results / where).symlink_to(outside)
    code, said = verb("report", "--out", str(results))
    assert code == 2 and f"{results / where} is a symbolic link" in said and said.count("\n") == 1
    assert is_untouched(outside)


@pytest.mark.parametrize("where", ["exports", "exports/csv", "exports/csv/Hopper"])
def test_no_export_is_written_through_a_link(
    results: Path, outside: Path, verb: Verb, where: str, tmp_path: Path
) -> None:
    (results / where).parent.mkdir(parents=True, exist_ok=True)
    (results / where).symlink_to(outside)
    code, said = verb("export", "csv", "--out", str(results))
    assert code == 2 and f"{results / where} is a symbolic link" in said and said.count("\n") == 1
    assert is_untouched(outside)
    (tmp_path / "typed").symlink_to(outside)  # who types a link means it
    words = ("export", "csv", "--out", str(results), "--to", str(tmp_path / "typed"))
    code, said = verb(*words)
    assert code == 2 and "metrics.csv is not an export and would be overwritten" in said and is_untouched(outside)
    (outside / "metrics.csv").unlink()
    assert verb(*words)[0] == 0
    assert (outside / "metrics.csv").is_file()


@pytest.mark.parametrize("name", ["runs", "attempts", "damaged", "reports", "slurm", ".lock"])
def test_nothing_is_added_through_a_link(results: Path, outside: Path, tmp_path: Path, name: str) -> None:
    if (results / name).is_dir():
        (results / name).rename(tmp_path / "away")
    target = outside / "mine.txt" if name == ".lock" else outside
    (results / name).unlink(missing_ok=True)
    (results / name).symlink_to(target)
    store = Store(results)
    with pytest.raises(UserError, match=f"{name} is a symbolic link"):
        store.open_for_writing()
    assert is_untouched(outside)


def test_a_folder_of_results_may_be_typed_as_a_link(results: Path, tmp_path: Path, verb: Verb) -> None:
    (tmp_path / "link").symlink_to(results)
    assert verb("report", "--out", str(tmp_path / "link"))[0] == 0
    assert (results / "reports" / "report-all" / "index.html").is_file()


def test_a_folder_that_cannot_be_made_is_one_line(results: Path) -> None:
    (results / "reports").write_text("a file")
    with pytest.raises(UserError, match="cannot be created"):
        make_subfolder(results, "reports", "x")
    (results / "figures").symlink_to(results / "nowhere")
    with pytest.raises(UserError, match="figures is a symbolic link"):
        make_subfolder(results, "figures")


@pytest.mark.parametrize("name", ["staleharness.json", "runs/*/run.json", "runs/*/manifest.json", "runs/*/job.json"])
def test_brackets_without_end_are_damage_like_any_other(results: Path, verb: Verb, name: str) -> None:
    (damaged,) = results.glob(name)
    damaged.write_text("[" * 100_000)
    code, said = verb("export", "csv", "--out", str(results))
    assert code == 2 and "damaged" in said and "Traceback" not in said


def test_a_deeply_nested_report_cache_is_rebuilt(results: Path, verb: Verb) -> None:
    folder = results / "reports" / "report-all"
    folder.mkdir(parents=True)
    for name in ("report.json", "table.json"):
        (folder / name).write_text("[" * 100_000)
    assert verb("report", "--out", str(results))[0] == 0
    assert all(json.loads((folder / name).read_text()) for name in ("report.json", "table.json"))


def test_a_manifest_of_brackets_without_end_is_damage(results: Path, tmp_path: Path, verb: Verb) -> None:
    assert verb("pack", str(results), str(tmp_path / "bundle"))[0] == 0
    (tmp_path / "bundle" / "manifest.json").write_text("[" * 100_000)
    code, said = verb("report", "--out", str(tmp_path / "bundle"))
    assert code == 2 and "are damaged: manifest.json: ValueError" in said
