"""Trouble around a run, told in one line of bearable length and by the right name."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
import torch
from known_plugins import loaded_plugins
from places import ROOT
from sweeping import TINY, Silent

from staleharness import __main__ as entry
from staleharness.algorithm import ALGORITHMS
from staleharness.errors import Diverged, UserError
from staleharness.running import worker
from staleharness.running.plan import plan
from staleharness.running.plan_execution import execute_plan
from staleharness.running.runner_interface import RunEnd
from staleharness.running.runners.local import LocalPool
from staleharness.running.supervision import Limits, Watchdog, limits_from_environment
from staleharness.store import attempt_folders
from staleharness.store.store import Store
from staleharness.study import sweep_request


def test_twenty_megabytes_of_an_error_are_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("x" * 20_000_000)
    told = worker.describe(ValueError("begin " + "y" * 20_000_000 + " end"), tmp_path)
    assert told["message"].startswith("begin y") and told["message"].endswith("y end")
    assert len(told["message"]) < 1100 and len(told["log_tail"]) < 60_000
    (tmp_path / "log.txt").write_text("line\n" * 1_000_000)
    assert worker.describe(ValueError(), tmp_path)["log_tail"] == "\n".join(["line"] * 25)


def what_torch_says() -> RuntimeError:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60, dtype=torch.uint8)
    return raised.value


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (MemoryError(), "OOM"),
        (what_torch_says(), "OOM"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "OOM"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "OOM"),
        (RuntimeError("std::bad_alloc"), "OOM"),
        (OSError(errno.ENOSPC, "No space left on device"), "DiskFull"),
        (OSError(errno.EFBIG, "File too large"), "DiskFull"),
        (OSError(errno.EIO, "Input/output error"), "OSError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
    ids=str,
)
def test_a_failure_is_called_what_it_is(tmp_path: Path, error: BaseException, kind: str) -> None:
    assert worker.describe(error, tmp_path)["class"] == kind


FULL_LOG = """
import json, sys
from staleharness.running import worker
from staleharness.running.runner_interface import Job
from staleharness.store.store import Store

worker._log_to = lambda path: None  # standard error is a full disk already
Store(sys.argv[1]).open_for_writing()
job = Job("0" * 12, "spo", {"env": "none", "device": "cpu", "threads": 1}, sys.argv[1], sys.argv[1])
worker.main(job, lambda event: print(json.dumps(event), flush=True), lambda: False)
"""


def test_a_failure_is_told_where_its_log_is_on_a_full_disk(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", FULL_LOG, str(tmp_path / "out")]
        output = subprocess.run(command, stdout=subprocess.PIPE, stderr=full, cwd=ROOT, text=True, check=False).stdout
    event = json.loads(output)
    assert event["event"] == "failed" and event["class"] == "UserError" and "none" in event["message"]


RAISING = """
import pathlib
from dataclasses import dataclass
from staleharness.algorithm import ALGORITHMS, Algorithm

@ALGORITHMS.register("raising")
@dataclass(frozen=True)
class Raising(Algorithm):
    def targets(self, trajectories):
        assert trajectories is None
    def policy_loss(self, decisions):
        return {}["a"]
    def stop(self, decisions):
        return pathlib.Path(decisions)
"""


@pytest.mark.parametrize(
    ("hook", "message"),
    [
        ("targets", "no message (my_idea.py, line 10)"),
        ("policy_loss", "'a' (my_idea.py, line 12)"),
        ("stop", "(my_idea.py, line 14)"),
    ],
)
def test_an_error_of_a_plugin_names_its_innermost_line(hook: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "my_idea.py").write_text(RAISING)
    with loaded_plugins(tmp_path / "my_idea.py"):
        method = ALGORITHMS["raising"]()
    with pytest.raises(Exception) as raised:  # noqa: PT011 (of several types)
        getattr(method, hook)(1)
    assert worker.describe(raised.value, tmp_path)["message"].endswith(message)
    assert worker.describe(AssertionError(), tmp_path)["message"] == "no message"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("a: stop returns 3"), "a: stop returns 3 (phase 7)"),
        (ValueError("boom"), "boom (phase 7)"),
        (Diverged("policy_loss is not finite in phase 7"), "policy_loss is not finite in phase 7"),
    ],
)
def test_an_error_names_its_phase(error: Exception, message: str, tmp_path: Path) -> None:
    error.add_note("of somebody else")
    error.add_note("phase 7")
    assert worker.describe(error, tmp_path)["message"] == message


def test_an_operation_that_is_not_deterministic_is_named(tmp_path: Path) -> None:
    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")
    try:
        with pytest.raises(RuntimeError) as raised:
            torch.zeros(3).put_(torch.tensor([0, 1]), torch.ones(2))
    finally:
        torch.set_deterministic_debug_mode(mode)
    message = worker.describe(raised.value, tmp_path)["message"]
    assert message.startswith(f"torch {torch.__version__} has no deterministic put_, and runs are deterministic; use")
    assert "use_deterministic_algorithms" not in message


def test_a_log_that_was_flooded_keeps_its_end_and_is_written_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_folders, "MAX_LOG", 1000)
    path = tmp_path / "log.txt"
    path.write_bytes(b"flood " * 1000 + b"the reason\n")
    with open(path, "ab") as writer:
        attempt_folders.shorten_log(path)
        writer.write(b"goes on\n")
    assert path.stat().st_size < 600 and path.read_text().endswith("the reason\ngoes on\n")
    before = path.read_bytes()
    attempt_folders.shorten_log(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["soon", "-1", "nan", "1s"])
@pytest.mark.parametrize("name", ["STALEHARNESS_CHECKPOINT_SECONDS", "STALEHARNESS_STALL_SECONDS"])
def test_a_time_that_is_none_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    monkeypatch.setenv(name, text)
    planned = plan(sweep_request(env="Hopper", algo="spo", settings=TINY, steps="64", seeds="1"))
    with pytest.raises(UserError, match=f"{name}='{text}' is not a number of seconds"):
        execute_plan(planned, Store(tmp_path / "out"), LocalPool(1), lambda done: Silent())  # type: ignore[arg-type, return-value]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["0", "0.0", "-0"])
def test_no_time_at_all_is_no_time_to_call_a_run_stalled(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("STALEHARNESS_STALL_SECONDS", text)
    with pytest.raises(UserError, match=r"STALEHARNESS_STALL_SECONDS=0 would end every run at once"):
        limits_from_environment()
    monkeypatch.delenv("STALEHARNESS_STALL_SECONDS")
    monkeypatch.setenv("STALEHARNESS_CHECKPOINT_SECONDS", text)  # a checkpoint after every phase
    assert limits_from_environment().checkpoint == 0


def test_times_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHECKPOINT", "STALL"):
        monkeypatch.delenv(f"STALEHARNESS_{name}_SECONDS", raising=False)
    assert limits_from_environment() == Limits()
    monkeypatch.setenv("STALEHARNESS_CHECKPOINT_SECONDS", "0.5")
    monkeypatch.setenv("STALEHARNESS_STALL_SECONDS", "inf")
    assert limits_from_environment() == Limits(checkpoint=0.5, stall=float("inf"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The sweep's monotonic clock."""
    now = [1000.0]
    monkeypatch.setattr("staleharness.running.supervision.time.monotonic", lambda: now[0])
    return now


def test_only_silence_by_a_clock_that_nobody_sets_is_a_stall(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    (run,) = plan(sweep_request(env="Hopper", algo="spo", settings=TINY, steps="64", seeds="1")).runs
    watch, active = Watchdog(100.0), {run.run_id: run}
    watch.note_progress(run.run_id)
    for passed, said in ((49, 0), (2, 1), (20, 1)):
        clock[0] += passed
        assert watch.find_stalls(active) == [] and caplog.text.count("has made no progress") == said
    watch.note_progress(run.run_id)  # it did
    for passed, said in ((50, 1), (49, 2)):
        clock[0] += passed
        assert watch.find_stalls(active) == [] and caplog.text.count("has made no progress") == said
    clock[0] += 2
    assert watch.find_stalls(active) == [run.run_id]
    assert watch.explain(RunEnd(run.run_id, None, "signal SIGKILL")).cause == "a stall: no progress for 1m40s"
    assert watch.explain(RunEnd("another", None, "signal SIGKILL")).cause == "signal SIGKILL"


def test_time_in_which_the_sweep_was_stopped_is_no_stall(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    """Ctrl-Z stops the runs as well, and fg lets all go on; one of them reports before the sweep looks again."""
    first, second = plan(sweep_request(env="Hopper", algo="spo", settings=TINY, steps="64", seeds="2")).runs
    watch, active = Watchdog(100.0), {run.run_id: run for run in (first, second)}

    def stalls_after(seconds: float) -> list[str]:
        clock[0] += seconds
        return watch.find_stalls(active)

    for run_id in active:
        watch.note_progress(run_id)
    assert stalls_after(45) == []
    clock[0] += 7200
    watch.note_progress(second.run_id)
    assert stalls_after(0) == [] and not caplog.text
    assert stalls_after(50) == [] and first.run_id in caplog.text
    assert stalls_after(6) == [first.run_id]
    assert stalls_after(43) == [first.run_id]
    assert stalls_after(2) == [first.run_id, second.run_id]


START = """
import pathlib
from staleharness.running.runners import local
local.WORKER = "json"
pool = local.LocalPool(1)
pool.open([], pathlib.Path())
"""


@pytest.mark.long
def test_a_long_tmpdir_is_no_trouble(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", START],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_while_the_command_is_loaded_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    class Impatient(MetaPathFinder):
        def find_spec(self, name: str, *more: Any) -> None:
            if name == "staleharness.cli":
                signal.raise_signal(signal.SIGINT)

    assert threading.current_thread() is threading.main_thread()
    monkeypatch.delitem(sys.modules, "staleharness.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Impatient(), *sys.meta_path])
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130
