"""The watch on deletions sees what loses work, and lets pass what does not."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import deletions
from tabular_runs import carry_out, job_of
from test_deletions import log as log
from test_deletions import losses

from staleharness.base.files import digest, write_json
from staleharness.store.store import Store


def test_the_watch_sees_what_loses_work(tmp_path: Path, log: Path) -> None:
    job = job_of(tmp_path / "out")
    carry_out(job, stop_after=3)
    place = Store(job.root).attempt_dir(job.run_id)
    assert losses(log) == []
    seen = [event["path"].rpartition("/")[2] for event in deletions.events(log)]
    assert "checkpoint-00000001.pt" in seen  # by a newer one
    (place / "checkpoint-00000003.pt").unlink()
    (place / "timing.jsonl").write_text("")
    shutil.rmtree(place)
    assert [loss.rpartition("/")[2] for loss in losses(log)] == [
        "checkpoint-00000003.pt: an intact checkpoint, the newest of its run",
        "timing.jsonl: timing.jsonl, on which checkpoint-00000002.pt counts",
        "checkpoint-00000002.pt: an intact checkpoint, the newest of its run",
        "metrics.jsonl: metrics.jsonl, on which checkpoint-00000002.pt counts",
        "timing.jsonl: timing.jsonl, on which checkpoint-00000002.pt counts",
    ]


def test_the_watch_sees_what_is_cut(tmp_path: Path, log: Path) -> None:
    job = job_of(tmp_path / "out")
    carry_out(job, stop_after=3)
    place = Store(job.root).attempt_dir(job.run_id)
    length = (place / "metrics.jsonl").stat().st_size
    with open(place / "metrics.jsonl", "ab") as stream:
        stream.write(b"beyond the checkpoint\n")
        stream.truncate(length)
    assert losses(log) == [] and deletions.events(log)[-1]["event"] == "os.truncate"
    with (place / "metrics.jsonl").open("r+b") as stream:
        stream.seek(length - 1)
        stream.truncate()
    os.truncate(place / "timing.jsonl", 9)
    (tmp_path / "table.csv").write_text("a table")
    with open(tmp_path / "table.csv", "a") as text:
        os.ftruncate(text.fileno(), 0)
    assert [loss.rpartition("/")[2] for loss in losses(log)] == [
        "metrics.jsonl: metrics.jsonl, on which checkpoint-00000003.pt counts",
        "timing.jsonl: timing.jsonl, on which checkpoint-00000003.pt counts",
        "table.csv: a file outside attempts",
    ]


def test_the_watch_lets_a_report_remove_its_own_files_alone(tmp_path: Path, log: Path) -> None:
    for name in ("own.png", "changed.png", "other.png"):
        (tmp_path / name).write_text("drawn")
    sha = digest(tmp_path / "own.png")
    write_json(tmp_path / "report.json", {"key": "k", "files": {"own.png": sha, "changed.png": sha}})
    with (tmp_path / "changed.png").open("a") as picture:
        picture.write(" and changed since")
    for name in ("own.png", "changed.png", "other.png", "report.json"):
        (tmp_path / name).unlink()
    assert losses(log) == [f"{name}: a file outside attempts" for name in ("changed.png", "other.png", "report.json")]
