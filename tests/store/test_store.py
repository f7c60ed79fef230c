"""A run is there whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from crash import every_crash

from staleharness.base import files
from staleharness.errors import UserError
from staleharness.store.store import FORMAT, Store
from staleharness.store.stored_run import read_intact

RUN = "0123456789ab"


def finished_attempt(root: Path, metrics: str = '{"phase": 0}\n') -> Store:
    """A store with one attempt that has everything but its manifest."""
    store = Store(root)
    store.open_for_writing()
    attempt = store.attempt_dir(RUN)
    attempt.mkdir(parents=True)
    for name, text in {
        "run.json": json.dumps({"format": FORMAT, "id": RUN, "spec": {}, "metrics_sha256": metrics}),
        "metrics.jsonl": metrics,
        "metrics.parquet": f"table of {metrics}", "timing.jsonl": "{}\n", "timing.parquet": "table",
        "job.json": "{}", "log.txt": "hello\n", ".lock": "", ".job.json.x7": "torn",
        "checkpoint-00000003.pt": "state", "failure.json": "{}", "MUJOCO_LOG.TXT": "a warning",
    }.items():  # fmt: skip
        (attempt / name).write_text(text)
    (attempt / "plots").mkdir()  # a plugin may leave anything in its working folder
    return store


def test_publishing_keeps_results_and_drops_what_was_needed_on_the_way(tmp_path: Path) -> None:
    store = finished_attempt(tmp_path)
    path = store.publish(RUN)
    assert sorted(p.name for p in path.iterdir()) == [
        "MUJOCO_LOG.TXT", "job.json", "log.txt", "manifest.json", "metrics.parquet", "plots", "run.json",
        "timing.parquet",
    ]  # fmt: skip
    assert not store.attempt_dir(RUN).exists()
    run = store.read(RUN)
    assert run is not None and run.id == RUN


def test_what_a_process_prints_at_its_very_end_does_not_damage_its_run(tmp_path: Path) -> None:
    path = finished_attempt(tmp_path).publish(RUN)
    with open(path / "log.txt", "a") as log:
        log.write("bye\n")
    assert not isinstance(read_intact(path), str)


def test_a_crash_at_any_point_of_publishing_leaves_the_run_absent_or_whole(tmp_path: Path) -> None:
    def publish(n: int) -> None:
        Store(tmp_path / str(n)).publish(RUN)

    seen = set()
    for n in every_crash(publish, lambda n: finished_attempt(tmp_path / str(n))):
        store = Store(tmp_path / str(n))
        run, attempt = store.read(RUN), store.attempt_dir(RUN)
        assert (run is not None) == store.run_dir(RUN).exists()  # nothing half is ever in `runs`
        assert (run is None) == attempt.exists()
        seen.add(run is None)
        if run is None:  # and what is left can be published as if nothing had happened
            publish(n)
            run = store.read(RUN)
        assert run is not None and not isinstance(read_intact(run.path), str)
    assert seen == {True, False}


def test_a_second_finisher_with_the_same_bytes_counts_once(tmp_path: Path) -> None:
    finished_attempt(tmp_path).publish(RUN)
    store = finished_attempt(tmp_path)
    assert store.publish(RUN) == store.run_dir(RUN)
    assert [run.id for run in store.read_all()] == [RUN]
    assert not store.attempt_dir(RUN).exists()


def test_a_second_finisher_with_other_bytes_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    first = finished_attempt(tmp_path).publish(RUN)
    before = (first / "metrics.parquet").read_bytes()
    with pytest.raises(RuntimeError, match="finished twice with different metrics"):
        finished_attempt(tmp_path, '{"phase": 1}\n').publish(RUN)
    assert (first / "metrics.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.parquet", b""), ("metrics.parquet", b"other"), ("run.json", b"{}"), ("manifest.json", b"{}"),
        ("manifest.json", b"[]"), ("manifest.json", b"\xff"), ("manifest.json", b"3"), ("metrics.parquet", None),
        ("manifest.json", None),
    ],
)  # fmt: skip
def test_a_damaged_run_does_not_count_and_reading_leaves_it_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes | None
) -> None:
    path = finished_attempt(tmp_path).publish(RUN)
    (path / name).unlink()
    if content is not None:
        (path / name).write_bytes(content)
    store = Store(tmp_path)
    assert store.read(RUN) is None and store.read_all() == []
    assert all("is damaged and does not count" in line for line in caplog.messages) and caplog.messages
    assert path.is_dir()
    assert store.put_damaged_aside(RUN) and not path.exists()
    assert (tmp_path / "damaged" / RUN / "log.txt").is_file()
    assert not store.put_damaged_aside(RUN)


@pytest.mark.parametrize("said", [{"format": FORMAT - 1}, {"format": FORMAT + 1}, {"format": None}, {}])
def test_a_run_of_another_format_is_said_in_one_line_and_does_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: dict[str, int | None]
) -> None:
    store = finished_attempt(tmp_path)
    record = json.loads((store.attempt_dir(RUN) / "run.json").read_text())
    del record["format"]
    (store.attempt_dir(RUN) / "run.json").write_text(json.dumps(record | said))
    path = store.publish(RUN)
    for read in (store.read_all, lambda: store.read_all([RUN]), lambda: store.read(RUN) or []):
        assert read() == []
        (line,) = caplog.messages
        caplog.clear()
        assert str(tmp_path) in line and f"1 run is of another format than {FORMAT}" in line
    assert store.put_damaged_aside(RUN) and not path.exists(), "a sweep makes it anew"


def test_a_whole_run_is_not_put_aside(tmp_path: Path) -> None:
    store = finished_attempt(tmp_path)
    store.publish(RUN)
    assert not store.put_damaged_aside(RUN)
    assert store.read(RUN) is not None


def test_a_folder_is_locked_by_one_sweep_at_a_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open_for_writing()
    with store.locked():
        with pytest.raises(UserError, match=f"process {os.getpid()}"), Store(tmp_path).locked():
            pass
        handles = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    with store.locked():
        assert not handles or len(os.listdir("/proc/self/fd")) == handles


def test_a_crash_while_a_folder_is_made_does_not_make_it_somebody_elses(tmp_path: Path) -> None:
    for n in every_crash(lambda n: Store(tmp_path / str(n)).open_for_writing()):
        Store(tmp_path / str(n)).open_for_writing()
        assert (tmp_path / str(n) / "attempts").is_dir()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_bytes(path, b"before")
    for _ in every_crash(lambda n: files.write_bytes(path, b"after!")):
        assert path.read_bytes() in (b"before", b"after!")
    assert path.read_bytes() == b"after!"


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write_bytes(path, b"before")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_bytes(path, b"after!")
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_paths_are_taken_as_people_type_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store("~/my results").root == tmp_path / "my results"
    (tmp_path / "link").symlink_to(tmp_path / "real")
    Store(tmp_path / "link").check()
    (tmp_path / "real").mkdir()
    Store(tmp_path / "link").open_for_writing()
    assert (tmp_path / "real" / "runs").is_dir()


@pytest.mark.parametrize("text", ["", "a\0b", "x" * 300, "~nobody-of-this-name/x"])
def test_what_is_no_path_is_one_line(text: str) -> None:
    with pytest.raises(UserError):
        Store(text).check()


def test_a_folder_without_permission_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(UserError, match="no permission"):
        Store(tmp_path / "results").open_for_writing()
    assert list(tmp_path.iterdir()) == []
