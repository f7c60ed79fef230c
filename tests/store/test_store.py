"""A run is there whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command_line import Cli
from crash import every_crash
from raising import raising
from results_helper import write_run

from staleharness.base import files
from staleharness.control.task import ControlTask
from staleharness.errors import UserError
from staleharness.store.attempt_folders import CHECKPOINTS
from staleharness.store.locks_and_leases import SWEEP_FILES
from staleharness.store.record_schema import FORMAT
from staleharness.store.run_states import run_states
from staleharness.store.store import Store
from staleharness.store.stored_run import read_run, write_manifest

RUN = "0123456789ab"


def record(metrics: str) -> dict[str, object]:
    """Return the entries that readers rely on."""
    return {
        "format": FORMAT,
        "id": RUN,
        "label": "spo",
        "task": ControlTask.facts(),
        "fingerprint": {},
        "summary": {},
        "spec": {"env": "Hopper-v5", "algorithm": "spo", "capacity": 1, "seed": 0},
        "seconds": {"total": 1, "evaluate": 0},
        "scores": {"sampled": {"mean": 1.0, "std": 0.0, "returns": [1.0], "lengths": [1]}},
        "lag_histogram": {},
        "phases": 1,
        "steps": 1,
        "gradient_steps": 1,
        "evaluation_steps": 1,
        "date": "2026-11-20",
        "metrics_sha256": hashlib.sha256(metrics.encode()).hexdigest(),
    }


OF_A_PLUGIN = (".notes", "MUJOCO_LOG.TXT", "checkpoint-best.pt", "decisions.jsonl")  # in its working folder


def finished_attempt(root: Path, metrics: str = '{"phase": 0}\n') -> Store:
    """A store with one attempt that has everything but its manifest."""
    store = Store(root)
    store.open_for_writing()
    attempt = store.attempt_dir(RUN)
    attempt.mkdir(parents=True)
    for name, text in {
        "run.json": json.dumps(record(metrics)),
        "metrics.jsonl": metrics,
        "metrics.parquet": f"table of {metrics}",
        "timing.jsonl": "{}\n",
        "timing.parquet": "table",
        "job.json": json.dumps({name: record("")[name] for name in ("label", "spec")}),
        "log.txt": "hello\n",
        ".lock": "",
        ".job.json.x7_a0b1c": "torn",
        ".checkpoint-00000004.pt.x7_a0b1c": "torn",
        "checkpoint-00000003.pt": "state",
        "failure.json": "{}",
        **dict.fromkeys(OF_A_PLUGIN, "its own"),
    }.items():
        (attempt / name).write_text(text)
    (attempt / "plots").mkdir()  # a plugin may leave anything in its working folder
    return store


def test_publishing_keeps_results_and_removes_temporary_files(tmp_path: Path) -> None:
    store = finished_attempt(tmp_path)
    path = store.publish(RUN)
    assert sorted(p.name for p in path.iterdir()) == [
        *OF_A_PLUGIN,
        "job.json",
        "log.txt",
        "manifest.json",
        "metrics.parquet",
        "plots",
        "run.json",
        "timing.parquet",
    ]
    assert not store.attempt_dir(RUN).exists()
    run = store.read(RUN)
    assert run is not None and run.id == RUN


def test_output_at_the_end_of_a_process_does_not_damage_a_run(tmp_path: Path) -> None:
    path = finished_attempt(tmp_path).publish(RUN)
    with open(path / "log.txt", "a") as log:
        log.write("bye\n")
    assert not isinstance(read_run(path), str)


@pytest.mark.parametrize("refusal", [None, errno.ENOSPC, errno.EIO, errno.EROFS], ids=str)
def test_a_failure_while_publishing_leaves_a_run_absent_or_whole(tmp_path: Path, refusal: int | None) -> None:
    def publish(n: int) -> None:
        Store(tmp_path / str(n)).publish(RUN)

    seen = set()
    for n in every_crash(publish, lambda n: finished_attempt(tmp_path / str(n)), refusal=refusal):
        store = Store(tmp_path / str(n))
        run, attempt = store.read(RUN), store.attempt_dir(RUN)
        assert (run is not None) == store.run_dir(RUN).exists()  # nothing half is ever in `runs`
        assert (run is None) == attempt.exists()
        seen.add(run is None)
        if run is None:  # and what is left can be published as if nothing had happened
            publish(n)
            run = store.read(RUN)
        assert run is not None and not isinstance(read_run(run.path), str)
    assert seen == {True, False}


def test_a_second_finisher_with_the_same_bytes_counts_once(tmp_path: Path) -> None:
    finished_attempt(tmp_path).publish(RUN)
    store = finished_attempt(tmp_path)
    assert store.publish(RUN) == store.run_dir(RUN)
    assert [run.id for run in store.read_all()] == [RUN]
    assert not store.attempt_dir(RUN).exists()


def test_a_second_result_with_other_bytes_is_an_error(tmp_path: Path) -> None:
    first = finished_attempt(tmp_path).publish(RUN)
    before = (first / "metrics.parquet").read_bytes()
    with pytest.raises(RuntimeError, match="finished twice with different metrics"):
        finished_attempt(tmp_path, '{"phase": 1}\n').publish(RUN)
    assert (first / "metrics.parquet").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.parquet", b""),
        ("metrics.parquet", b"other"),
        ("run.json", b"{}"),
        ("manifest.json", b"{}"),
        ("manifest.json", b"[]"),
        ("manifest.json", b"\xff"),
        ("manifest.json", b"3"),
        ("metrics.parquet", None),
        ("manifest.json", None),
    ],
)
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
def test_a_run_of_another_format_is_one_line_and_not_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, said: dict[str, int | None]
) -> None:
    store = finished_attempt(tmp_path)
    other = {key: value for key, value in record("").items() if key != "format"}
    (store.attempt_dir(RUN) / "run.json").write_text(json.dumps(other | said))
    path = store.publish(RUN)
    for read in (store.read_all, lambda: store.read_all([RUN]), lambda: store.read(RUN) or []):
        assert read() == []
        (line,) = caplog.messages
        caplog.clear()
        assert str(tmp_path) in line and f"1 run is of another format than {FORMAT}" in line
    assert store.put_damaged_aside(RUN) and not path.exists(), "a sweep makes it anew"


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("spec", None),
        ("spec", []),
        ("spec", {"env": 3}),
        ("label", 7),
        ("seconds", {}),
        ("phases", "many"),
        ("phases", True),
        ("scores", {"sampled": 3}),
        ("scores", {"sampled": {"mean": "1", "returns": []}}),
    ],
)
def test_an_unreadable_record_in_a_manifest_is_not_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: str, value: object
) -> None:
    store = finished_attempt(tmp_path)
    (store.attempt_dir(RUN) / "run.json").write_text(json.dumps(record("") | {entry: value}))
    store.publish(RUN)
    assert store.read_all() == []
    assert f"run {RUN} is damaged and does not count (" in caplog.text
    assert entry in caplog.text.partition(" (")[2]


def test_a_run_counts_under_its_own_name_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = finished_attempt(tmp_path).publish(RUN)
    for name in ("0123456789ac", f"{RUN} (copy)"):
        shutil.copytree(path, path.parent / name)
    assert [run.path.name for run in Store(tmp_path).read_all()] == [RUN]
    assert f"its record is that of run '{RUN}'" in caplog.text and "its name is not a run id" in caplog.text


@pytest.mark.parametrize("file", ["metrics.parquet", "timing.parquet"])
@pytest.mark.parametrize("verb", ["pack", "report"])
def test_a_sealed_table_that_is_none_is_one_line(tmp_path: Path, cli: Cli, verb: str, file: str) -> None:
    run = write_run(tmp_path / "r", phases=4)
    shorter = pq.read_table(run.path / file).slice(0, 2)
    words = {"pack": [str(tmp_path / "r"), str(tmp_path / "packed")], "report": ["--out", str(tmp_path / "r")]}[verb]
    for content, problem in ((b"no table", "cannot be read"), (shorter, "has 2 rows, but its run has 4 phases")):
        if isinstance(content, bytes):
            (run.path / file).write_bytes(content)
        else:
            pq.write_table(content, run.path / file)
        write_manifest(run.path)
        if verb == "report" and file == "timing.parquet":  # which it has no use for
            continue
        code, out, err = cli(verb, *words)
        assert (code, out) == (2, "") and f"{run.path / file} {problem}" in err and err.count("\n") == 1
        assert not (tmp_path / "packed").exists()


@pytest.mark.parametrize("name", ["../../escaped", "/etc/passwd", "", "0123456789AB", f"{RUN}\n", "0" * 300])
def test_only_the_name_of_a_run_ever_becomes_a_path(tmp_path: Path, name: str) -> None:
    for place in (Store(tmp_path).run_dir, Store(tmp_path).attempt_dir):
        with pytest.raises(UserError, match="is not a run id"):
            place(name)


def test_publishing_puts_aside_what_is_in_the_runs_place(tmp_path: Path) -> None:
    places = {
        "a folder without a record": lambda path: (path / "plots").mkdir(parents=True),
        "a file": lambda path: path.write_text("mine"),
        "a link to nothing": lambda path: path.symlink_to(tmp_path / "nowhere"),
        "a link to a run": lambda path: path.symlink_to(tmp_path / "elsewhere"),
    }
    (tmp_path / "elsewhere").mkdir()
    for number, put in enumerate(places.values()):
        store = finished_attempt(tmp_path / str(number))
        put(store.run_dir(RUN))
        assert store.publish(RUN).is_dir() and not store.run_dir(RUN).is_symlink()
        assert [run.id for run in store.read_all()] == [RUN]
        assert [path.name for path in (store.root / "damaged").iterdir()] == [RUN]
        put(store.root / "runs" / "0123456789ac")
        assert store.put_damaged_aside("0123456789ac") and store.read("0123456789ac") is None


def test_a_second_damaged_run_does_not_take_the_place_of_the_first(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open_for_writing()
    for text in ("first", "second"):
        store.run_dir(RUN).write_text(text)
        assert store.put_damaged_aside(RUN)
    assert [path.read_text() for path in sorted((tmp_path / "damaged").iterdir())] == ["first", "second"]


def test_after_a_failed_rename_the_next_call_publishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = finished_attempt(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr(Path, "rename", raising(OSError(errno.EIO, "Input/output error")))
        store.publish(RUN)
    assert store.is_sealed(RUN) and not store.is_done(RUN)
    assert store.publish(RUN) == store.run_dir(RUN) and store.is_done(RUN)


@pytest.mark.parametrize("name", ["log.txt", "metrics.jsonl", ".lock", "checkpoint-00000001.pt", "run.json"])
def test_an_attempt_is_never_written_to_through_a_link(tmp_path: Path, name: str) -> None:
    store, victim = Store(tmp_path / "out"), tmp_path / "victim"
    store.open_for_writing()
    victim.write_text("mine")
    store.open_attempt(RUN)
    (store.attempt_dir(RUN) / name).symlink_to(victim)
    assert list(store.open_attempt(RUN).iterdir()) == [] and victim.read_text() == "mine"
    (store.attempt_dir(RUN) / name).mkdir()  # nor is a folder in a file's place taken for one
    assert list(store.open_attempt(RUN).iterdir()) == []


def test_an_attempt_whose_place_is_taken_is_begun_all_the_same(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    store.open_for_writing()
    store.attempt_dir(RUN).write_text("a file")
    assert store.open_attempt(RUN).is_dir()
    assert (store.root / "damaged" / RUN).read_text() == "a file"


@pytest.mark.parametrize(("marker", "said"), [('{"format": 9}', "format 9"), ("{}", "damaged"), ("", "damaged")])
def test_a_folder_of_another_format_is_neither_read_nor_added_to(tmp_path: Path, marker: str, said: str) -> None:
    store = Store(tmp_path)
    store.open_for_writing()
    (tmp_path / "staleharness.json").write_text(marker)
    for use in (store.check, store.check_readable, store.open_for_writing):
        with pytest.raises(UserError, match=said):
            use()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    store = Store(tmp_path)
    store.open_for_writing()
    monkeypatch.setattr(fcntl, "flock", raising(OSError(number, os.strerror(number))))
    with pytest.raises(UserError, match="does not support locks"), store.hold():
        pass


def test_status_lists_what_it_can_read_and_names_what_it_cannot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = finished_attempt(tmp_path)
    (store.attempt_dir(RUN) / "job.json").write_text('{"label": "spo", "spec": {}}')
    job = {"label": "spo", "phases": 3, "spec": record("")["spec"]}
    for number, content in enumerate(("", "[]", '{"label": "spo"}', json.dumps(job))):
        attempt = store.open_attempt(f"{number:012}")
        (attempt / "job.json").write_text(content)
        (attempt / "failure.json").write_text("torn")
    (tmp_path / "attempts" / "notes").mkdir()
    content = run_states(store)
    (row,) = content["runs"]
    assert (row["id"], row["state"], row["failure"]["class"]) == (f"{3:012}", "failed", "Unreadable")
    assert caplog.text.count("the next sweep starts it over") == 4  # and the one that has no phases


def test_status_counts_a_run_once(tmp_path: Path) -> None:
    """A stopped run that then came from a bundle, say."""
    store = finished_attempt(tmp_path)
    shutil.copytree(store.attempt_dir(RUN), tmp_path / "left")
    store.publish(RUN)
    (tmp_path / "left").rename(store.attempt_dir(RUN))
    assert run_states(store)["counts"] == {"done": 1, "running": 0, "stopped": 0, "failed": 0}


def test_a_failed_run_that_is_tried_again_is_running(tmp_path: Path) -> None:
    store = finished_attempt(tmp_path)  # with the failure of an earlier try
    assert [row["state"] for row in run_states(store)["runs"]] == ["failed"]
    with open(store.attempt_dir(RUN) / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert [row["state"] for row in run_states(store)["runs"]] == ["running"]


def test_a_whole_run_is_not_put_aside(tmp_path: Path) -> None:
    store = finished_attempt(tmp_path)
    store.publish(RUN)
    assert not store.put_damaged_aside(RUN)
    assert store.read(RUN) is not None


def test_a_sweep_removes_only_its_own_temporary_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open_for_writing()
    mine = [".env.personal", ".backup.20240101", ".notes.abcdefgh", ".staleharness.json.ABCDEFGH"]
    torn = [".staleharness.json.x1_bcdef", "..lease.x1_bcdef", ".probe.01234567", "..probe.01234567.x1_bcdef"]
    for name in (*mine, *torn):
        (tmp_path / name).write_text("")
    with store.hold():
        assert {p.name for p in tmp_path.iterdir() if p.is_file()} == {*mine, ".lock", "staleharness.json"}


def test_whole_leaves_what_a_sweep_takes_for_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", lambda old, new: None)  # as a kill before it does
    for name in ("staleharness.json", ".lease", ".probe.01234567", "checkpoint-00000001.pt", "mine"):
        files.write_bytes(tmp_path / name, b"")
    assert len(list(tmp_path.iterdir())) == 5
    files.remove_temporaries(tmp_path, *SWEEP_FILES, CHECKPOINTS, age=0.0)
    assert [p.name[:6] for p in tmp_path.iterdir()] == [".mine."]


def test_a_folder_is_locked_by_one_sweep_at_a_time(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open_for_writing()
    with store.hold():
        with pytest.raises(UserError, match=f"process {os.getpid()}"), Store(tmp_path).hold():
            pass
        handles = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
    with store.hold():
        assert not handles or len(os.listdir("/proc/self/fd")) == handles


def test_a_folder_stays_ours_after_a_crash_while_creating_it(tmp_path: Path) -> None:
    for n in every_crash(lambda n: Store(tmp_path / str(n)).open_for_writing()):
        Store(tmp_path / str(n)).open_for_writing()
        assert (tmp_path / str(n) / "attempts").is_dir()


@pytest.mark.parametrize("refusal", [None, errno.ENOSPC], ids=str)
def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, refusal: int | None) -> None:
    path = tmp_path / "file"
    files.write_bytes(path, b"before")
    for _ in every_crash(lambda n: files.write_bytes(path, b"after!"), refusal=refusal):
        assert path.read_bytes() in (b"before", b"after!")
        assert refusal is None or [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"after!"


def test_other_users_may_read_what_is_written(tmp_path: Path) -> None:
    files.write_bytes(tmp_path / "file", b"x")
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_a_folder_that_an_ordinary_user_may_not_write_is_one_line() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "results"
        Store(folder).open_for_writing()
        for path in (Path(name), folder, folder / "runs", folder / "attempts"):
            path.chmod(0o555)
        root = os.geteuid() == 0
        if root:  # who may write anywhere
            os.seteuid(65534)
        try:
            for out in (folder, Path(name) / "new"):
                with pytest.raises(UserError, match=rf"^OUT=.*/{out.name} cannot be (written|used): .*ermission"):
                    Store(out).open_for_writing()
                    with Store(out).hold():
                        pass
            assert Store(folder).read_all() == []  # reading needs no more than reading
        finally:
            if root:
                os.seteuid(0)
            for path in (folder, Path(name)):
                path.chmod(0o755)


def test_a_lock_that_cannot_be_opened_is_one_line(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open_for_writing()
    (tmp_path / ".lock").mkdir()
    with pytest.raises(UserError, match=r"^OUT=.* cannot be written: Is a directory: .*/\.lock$"), store.hold():
        pass


def test_paths_are_taken_as_people_type_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store("~/my results").root == tmp_path / "my results"
    (tmp_path / "link").symlink_to(tmp_path / "real")
    Store(tmp_path / "link").check()
    (tmp_path / "real").mkdir()
    Store(tmp_path / "link").open_for_writing()
    assert (tmp_path / "real" / "runs").is_dir()


def test_a_link_to_nothing_is_a_folder_that_is_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "results")
    Store(tmp_path / "link").open_for_writing()
    assert (tmp_path / "disk" / "results" / "runs").is_dir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UserError, match=r"loop cannot be (used|written): "):
        Store(tmp_path / "loop").open_for_writing()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("runs", "cannot be written: File exists"),
        ("attempts", "cannot be written: File exists"),
        ("staleharness.json", "holds something other than staleharness results"),
    ],
)
def test_a_file_where_a_folder_should_be_is_one_line(tmp_path: Path, name: str, words: str) -> None:
    store = Store(tmp_path)
    store.open_for_writing()
    if (tmp_path / name).is_dir():
        (tmp_path / name).rmdir()
        (tmp_path / name).write_text("")
    else:
        (tmp_path / name).unlink()
        (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=words):
        store.open_for_writing()
    assert store.read_all() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "^OUT is empty; give a folder"),
        ("a\0b", "is not a path: it has a NUL in it$"),
        ("x" * 300, "is not a path: File name too long$"),
        ("~nobody-of-this-name/x", "is not a path: Could not determine home directory"),
    ],
)
def test_what_is_no_path_is_one_line(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Store(text).check()


def test_a_folder_without_permission_is_refused_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(UserError, match="no permission"):
        Store(tmp_path / "results").open_for_writing()
    assert list(tmp_path.iterdir()) == []


def test_one_run_is_read_without_listing_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path)
    monkeypatch.setattr(Path, "iterdir", lambda path: pytest.fail(f"{path} was listed"))
    assert Store(tmp_path).read(run.id) == run


def test_a_run_under_another_label_is_not_adopted(tmp_path: Path) -> None:
    """Its id is that of its spec alone, which two labels of one method share."""
    run = write_run(tmp_path / "there", "spo")
    here, there = Store(tmp_path / "here"), Store(tmp_path / "there")
    here.open_for_writing()
    assert here.adopt(there, {run.id: "spo[epsilon=0.2]"}) == 0 and here.read_all() == []
    assert here.adopt(there, {run.id: "spo"}) == 1 and [r.id for r in here.read_all()] == [run.id]
