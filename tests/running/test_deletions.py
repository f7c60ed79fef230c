"""Nothing that matches its digest is deleted, but by a newer checkpoint of its run: every deletion is watched.

The watch itself: test_watch_on_deletions.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import deletions
import pytest
import renewals
import torch
from crash import EVERY, Refusal, every_crash
from known_plugins import TABULAR, loaded_plugins
from places import HELPERS
from renewals import cheap_pictures as cheap_pictures
from renewals import root as root
from sweeping import environment, relatives, staleharness, wait_until
from tabular_runs import carry_out, job_of
from test_repair import MISFIT, contents
from test_runner_interface import InTurn

from staleharness.errors import UserError
from staleharness.pages import report
from staleharness.running import plan_execution
from staleharness.store.attempt_folders import holder_name
from staleharness.store.store import Store
from staleharness.training import checkpoint
from staleharness.training.loop import Simulation


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    """A line for each file below `tmp_path` that is deleted or replaced."""
    log = tmp_path.with_suffix(".log")
    with loaded_plugins(TABULAR):
        deletions.watch(tmp_path, log)
        yield log
    deletions.stop()


def losses(log: Path) -> list[str]:
    return [f"{event['path']}: {event['lost']}" for event in deletions.events(log) if event["lost"]]


@pytest.mark.parametrize("variable", [None, "MKL_CBWR"])
def test_no_resume_under_another_fingerprint_loses_work(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    job = job_of(tmp_path / "out")
    carry_out(job, stop_after=3)
    for restart in (False, True, False):
        with monkeypatch.context() as patch, contextlib.suppress(UserError):
            if variable:
                patch.setenv(variable, "COMPATIBLE")
            carry_out(replace(job, restart=restart), stop_after=4)
    carry_out(job)
    assert losses(log) == [] and deletions.events(log)


def raise_memory_error(*_: object, **__: object) -> None:
    raise MemoryError


@pytest.mark.parametrize(
    "place", [(checkpoint, "_matches"), (torch, "load"), (Simulation, "load_state_dict"), (Simulation, "__init__")]
)
def test_no_resume_that_lacks_memory_loses_work(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, place: tuple[object, str]
) -> None:
    job = job_of(tmp_path / "out")
    carry_out(job, stop_after=3)
    there = contents(tmp_path)
    for restart in (False, True):
        with monkeypatch.context() as patch, pytest.raises(MemoryError):
            patch.setattr(*place, raise_memory_error)
            carry_out(replace(job, restart=restart))
    assert losses(log) == [] and contents(tmp_path) == there


@pytest.mark.parametrize("refusal", [None, errno.ENOSPC], ids=["killed", "full disk"])
@pytest.mark.parametrize("step", EVERY)
@pytest.mark.parametrize("how", ["a phase beyond the end", "checkpoints of other instructions"])
def test_no_restart_that_is_cut_off_loses_work(
    tmp_path: Path, log: Path, how: str, step: int, refusal: int | None
) -> None:
    """A new start beside checkpoints, cut off at each of its dealings with the disk, then a second one."""
    places = {}
    stopped = job_of(tmp_path / "0")
    carry_out(stopped, stop_after=3)
    MISFIT[how](Store(stopped.root).attempt_dir(stopped.run_id))

    def prepare(n: int) -> None:
        job = replace(stopped, root=str(tmp_path / str(n)))
        shutil.copytree(stopped.root, job.root)
        places[n] = (replace(job, restart=True), contents(tmp_path / str(n)))

    def restart(n: int) -> None:
        with contextlib.suppress(UserError):
            carry_out(places[n][0], stop_after=1)

    for n in every_crash(restart, prepare, at_most=300, step=7 * step if step > 1 else 1, refusal=refusal):
        job, there = places[n]
        assert contents(tmp_path / str(n)) >= there
        carry_out(job, stop_after=2)
        assert contents(tmp_path / str(n)) >= there
        assert losses(log) == []
        deletions.stop()
        shutil.rmtree(job.root)
        deletions.watch(tmp_path, log)


def sweep_of_two(*words: str) -> Callable[[Path], int]:
    asked = "sweep --env random-mdp-0 --k 2 --algo spo --steps 640 --seeds 2".split()
    return lambda root: staleharness(*asked, *words, "--out", str(root / "own")).returncode


ACTS = {
    "sweep": sweep_of_two(),
    "resume": sweep_of_two(),
    "restart": sweep_of_two("--restart"),
    **{name: renewals.ACTS[name][0] for name in ("report", "figures")},
}
TROUBLES: dict[str, Refusal] = {"fingerprint": None, "memory": MemoryError, "full disk": errno.ENOSPC}


def folder_before(tmp_path: Path, root: Path, name: str) -> Path:
    """Return a folder with what is there before a command: runs, checkpoints, a report or pictures."""
    if name in ("report", "figures"):
        earlier, *_ = renewals.renew(tmp_path, root, name)
        kept = {"report": "results/reports/all/four.png", "figures": "made/p/fig3.png"}[name]
        (earlier / kept).write_text("changed since, or of results that are absent now")
        return earlier
    earlier = tmp_path / "earlier"
    carry_out(job_of(earlier / "own"))
    if name != "sweep":
        carry_out(job_of(earlier / "own", seed=1), stop_after=3)
    return earlier


@pytest.mark.parametrize("step", EVERY)
@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("name", ACTS)
def test_no_command_in_trouble_loses_work(
    tmp_path: Path, root: Path, log: Path, monkeypatch: pytest.MonkeyPatch, name: str, trouble: str, step: int
) -> None:
    """Commands that run elsewhere, or lack memory or disk at some of their dealings with files, and then run again."""
    monkeypatch.setenv("STALEHARNESS_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr(plan_execution, "make_runner", lambda *request: InTurn(1))
    if name not in renewals.ACTS:
        monkeypatch.setattr(report, "write", lambda folder, *what: folder / "index.html")
    deletions.stop()
    earlier, act = folder_before(tmp_path, root, name), ACTS[name]

    def prepare(n: int) -> None:
        deletions.stop()
        shutil.rmtree(root)
        shutil.copytree(earlier, root)
        deletions.watch(tmp_path, log)

    def run_elsewhere() -> Iterator[int]:
        prepare(1)
        with monkeypatch.context() as patch:
            patch.setenv("MKL_CBWR", "COMPATIBLE")
            assert act(root) == (2 if name == "resume" else 0 if name in ("sweep", "restart") else None)
        yield 1

    step = 97 if step > 1 else 5
    refused = every_crash(lambda n: act(root), prepare, at_most=900, step=step, refusal=TROUBLES[trouble])
    for _ in refused if TROUBLES[trouble] else run_elsewhere():
        assert losses(log) == []
        assert act(root) in (0, None)
        assert losses(log) == []
    assert deletions.events(log)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_late_worker_keeps_what_the_next_has_yet_to_copy(tmp_path: Path, log: Path, where: str) -> None:
    """Its task begins again in the same folder, while another machine has begun on the run."""
    job = replace(job_of(tmp_path / "out"), holder=holder_name(1))
    carry_out(job, stop_after=3)
    there = contents(tmp_path)
    later = replace(job, holder=holder_name(2))
    Store(job.root, later.holder).open_attempt(job.run_id)
    if where == "after":
        carry_out(later, stop_after=4)
    carry_out(job, stop_after=4)
    assert losses(log) == [] and (where == "after" or contents(tmp_path) == there)
    assert carry_out(later) == ([4, 5] if where == "before" else [5])


def test_no_take_over_loses_checkpoints_of_another_fingerprint(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three machines, the second of which is of another kind and was told to start over."""
    job = job_of(tmp_path / "out")
    first, second, third = (replace(job, holder=holder_name(n)) for n in (1, 2, 3))
    carry_out(first, stop_after=4)
    shutil.copytree(Store(job.root, first.holder).attempt_dir(job.run_id), tmp_path / "copy")
    with monkeypatch.context() as patch:
        patch.setenv("MKL_CBWR", "COMPATIBLE")
        assert carry_out(replace(second, restart=True), stop_after=2) == [1, 2]
    # what the second could not remove, as some file systems keep what somebody has open
    shutil.move(tmp_path / "copy", Store(job.root, first.holder).attempt_dir(job.run_id))
    there = contents(tmp_path)
    assert carry_out(third) == [5]
    assert losses(log) == [] and there


def test_an_intact_checkpoint_beats_a_later_damaged_one(tmp_path: Path, log: Path) -> None:
    job = job_of(tmp_path / "out")
    first, second, third = (replace(job, holder=holder_name(n)) for n in (1, 2, 3))
    carry_out(first, stop_after=3)
    place = Store(job.root, first.holder).attempt_dir(job.run_id)
    shutil.copytree(place, Store(job.root, second.holder).attempt_dir(job.run_id))
    deletions.stop()
    for path, phase in zip(checkpoint.newest_first(place), (9, 8), strict=True):
        path.rename(path.with_name(f"checkpoint-{phase:08}.pt")).write_bytes(b"torn")
    deletions.watch(tmp_path, log)
    assert carry_out(third) == [4, 5]
    assert losses(log) == []


MAIN = "import deletions; from staleharness import cli; cli.main()"
# A command line that kills itself, and all of its workers, when a run is at its sixth phase, and stays there.
KILLED = """
import deletions, os, signal
from kill_points import STAYS_AT, waiting_child
from staleharness import cli
from staleharness.commands.shared.progress_display import PlainLines
from staleharness.running.runners import local
local._in_child = waiting_child
PlainLines.on_phase = lambda self, run, heard: heard["phase"] < STAYS_AT or os.killpg(0, signal.SIGKILL)
cli.main()
"""


# A kind of task whose workers are watched, and reports of one figure.
WATCHED = """
import deletions
from staleharness.figures import registry
every = registry.sections
registry.sections = lambda results: every(results)[:1]
"""


@pytest.mark.long
def test_no_command_loses_work(tmp_path: Path) -> None:
    """Commands in processes of their own, workers included: a sweep that is killed, refused and gone on with, its
    report, a bundle, and a gallery: a figure that is drawn, one that has no results, and the first once more."""
    out, log, gallery = tmp_path / "out", tmp_path.with_suffix(".log"), tmp_path / "gallery"
    plugin = tmp_path / "watched_toy.py"
    plugin.write_text((HELPERS / "toy_kind.py").read_text() + WATCHED)
    variables = environment(
        PYTHONPATH=os.pathsep.join([environment()["PYTHONPATH"], str(HELPERS)]),
        STALEHARNESS_PLUGINS=str(plugin),
        STALEHARNESS_CHECKPOINT_SECONDS="0",
        WATCHED_FOLDER=str(tmp_path),
        DELETIONS=str(log),
    )

    def command(*words: str, code: str = MAIN, **more: str) -> tuple[int, str]:
        whole = [sys.executable, "-c", code, *words]
        done = subprocess.run(whole, env=variables | more, capture_output=True, text=True, start_new_session=True)
        return done.returncode, done.stderr

    sweep = f"sweep --env toy --algo spo --k 2 --seeds 1 --jobs 1 --out {out}".split()
    code, errors = command(*sweep, code=KILLED)
    assert code == -signal.SIGKILL, errors
    wait_until(lambda: not relatives(out))
    there = contents(out)
    assert there
    code, errors = command(*sweep, MKL_CBWR="COMPATIBLE")
    assert code == 2 and errors.count("\n") == 1 and "--restart" in errors and "MKL_CBWR" in errors
    assert contents(out) == there
    for words in (sweep, ["pack", str(out), str(tmp_path / "bundle")]):
        assert command(*words)[0] == 0
    figures = ("figures", "--paper", "ppo_ewma", "--out", str(gallery))
    assert command(*figures, "--fig", "fig1")[0] == 0
    other = gallery / "ppo_ewma/batch.png"
    other.write_text("drawn earlier")
    before = {path: path.read_bytes() for path in gallery.rglob("*") if path.is_file()}
    code, errors = command(*figures, "--scale", "paper")
    assert code == 2 and errors.count("\n") == 1
    assert {path: path.read_bytes() for path in before} == before
    assert command(*figures, "--fig", "fig1")[0] == 0
    assert all(path.is_file() for path in before) and other.read_text() == "drawn earlier"
    assert losses(log) == []
    seen = {Path(event["path"]).suffix for event in deletions.events(log)}
    assert seen >= {".pt", ".png"}, "workers, or the figure, were not watched"
