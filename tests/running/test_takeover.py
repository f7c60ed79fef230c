"""Workers that work on though another has taken their run over: they publish nothing and spoil nothing."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crash import CALLS, EVERY, every_crash
from tabular_runs import PHASES, Result, carry_out, job_of, result
from tabular_runs import job as job
from tabular_runs import once as once
from tabular_runs import straight as straight

from staleharness.errors import Interrupted
from staleharness.running import takeover, worker
from staleharness.running.runner_interface import Job
from staleharness.store import locks_and_leases
from staleharness.store.attempt_folders import FINGERPRINT, holder_name, parse_attempt_name
from staleharness.store.run_states import run_states
from staleharness.store.store import Store


def for_next_holder(job: Job) -> Job:
    """Return the job with its next holder, as a sweep hands it out if machines share the folder."""
    return replace(job, holder=Store(job.root).next_holder(job.run_id))


def all_files(root: str) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(Path(root).rglob("*")) if p.is_file() and p.name != ".lock"}


def on_one_machine(job: Job) -> Job:
    return job


@pytest.mark.parametrize(
    "first, second",
    [(for_next_holder, for_next_holder), (for_next_holder, on_one_machine), (on_one_machine, for_next_holder)],
)
def test_the_next_holder_goes_on_from_what_the_one_before_has_left(
    job: Job, straight: Result, first: Callable[[Job], Job], second: Callable[[Job], Job]
) -> None:
    assert carry_out(first(job), stop_after=3) == [1, 2, 3]
    assert carry_out(second(job)) == [4, 5] and result(job) == straight
    assert list((Path(job.root) / "attempts").iterdir()) == []


def test_files_of_a_plugin_go_along_to_the_finished_run(job: Job) -> None:
    files = (".notes", "checkpoint-best.pt", "decisions.jsonl", "plots/.first")
    assert carry_out(for_next_holder(job), stop_after=3) == [1, 2, 3]
    (attempt,) = (Path(job.root) / "attempts").iterdir()
    (attempt / "plots").mkdir()
    for name in files:
        (attempt / name).write_text(name)
    (attempt / ".run.json.a0b1c2d3").write_text("torn")
    carry_out(for_next_holder(job))
    run = Store(job.root).run_dir(job.run_id)
    assert [(run / name).read_text() for name in files] == [*files]
    assert [path.name for path in run.iterdir() if path.name.startswith(".")] == [".notes"]


@pytest.mark.parametrize("phase", [1, 3, 5])
def test_an_orphan_that_works_on_ends_without_a_trace(job: Job, straight: Result, phase: int) -> None:
    """After a phase of its, another takes the run over and finishes it. After the last it has only to publish."""
    there: dict[str, bytes] = {}

    def on_other_machine() -> None:
        assert carry_out(for_next_holder(job))[-1] == PHASES
        there.update(all_files(job.root))

    heard = carry_out(for_next_holder(job), {phase: on_other_machine})
    assert heard[-1] == phase and there and all_files(job.root) == there
    assert result(job) == straight and list((Path(job.root) / "attempts").iterdir()) == []


def test_an_orphan_without_lease_checks_cannot_publish(
    job: Job, straight: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let it write to its logs, which nobody reads any more, until it has to create a file."""
    monkeypatch.setattr(locks_and_leases.Lease, "lost", property(lambda lease: False))
    there: dict[str, bytes] = {}

    def on_other_machine() -> None:
        assert carry_out(for_next_holder(job)) == [2, 3, 4, 5]  # it begins with the checkpoint after the first phase
        there.update(all_files(job.root))

    carry_out(for_next_holder(job), stop_after=1)
    assert carry_out(replace(for_next_holder(job), checkpoint_seconds=1e9), {2: on_other_machine}) == [2, 3, 4]
    assert there and all_files(job.root) == there and result(job) == straight


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.faults)])
def test_takeover_during_publication_gives_one_run(
    tmp_path: Path, straight: Result, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """At the n-th dealing with the disk after the last phase, for every n, another worker does the run to its end."""
    hit, n = True, 1
    while hit:
        job, hit = job_of(tmp_path / str(n)), False
        calls = itertools.count(1)

        def meanwhile(job: Job = job, calls: Iterator[int] = calls, n: int = n) -> None:
            nonlocal hit
            if next(calls) == n:
                hit = True
                carry_out(for_next_holder(job))

        def watch(meanwhile: Callable[[], None] = meanwhile) -> None:
            for name in CALLS:
                monkeypatch.setattr(os, name, before(getattr(os, name), meanwhile))

        with contextlib.suppress(Interrupted):
            carry_out(for_next_holder(job), {PHASES: watch})
        monkeypatch.undo()
        assert result(job) == straight and [path.name for path in (Path(job.root) / "runs").iterdir()] == [job.run_id]
        Store(job.root).clear_attempts([job.run_id])  # as a sweep does
        assert list((Path(job.root) / "attempts").iterdir()) == [] and not (Path(job.root) / "damaged").exists()
        n += step
    assert n > 25


def before(call: Callable[..., Any], act: Callable[[], None]) -> Callable[..., Any]:
    def rename(*args: Any, **kwargs: Any) -> Any:
        act()
        return call(*args, **kwargs)

    return rename


@pytest.mark.parametrize("refusal", [None, errno.ENOSPC], ids=["killed", "refused"])
@pytest.mark.parametrize("step", EVERY)
@pytest.mark.long
def test_a_takeover_that_is_cut_off_loses_no_checkpoint(
    tmp_path: Path, straight: Result, step: int, refusal: int | None
) -> None:
    def prepare(n: int) -> None:
        carry_out(for_next_holder(job_of(tmp_path / str(n))), stop_after=3)

    def take_over(n: int) -> None:
        job = for_next_holder(job_of(tmp_path / str(n)))
        store = Store(job.root, job.holder)
        store.open_attempt(job.run_id)
        takeover.take_over(store.attempt_dir(job.run_id), store.root / "damaged")
        assert list(store.attempt_dir(job.run_id).glob("checkpoint-*"))

    for n in every_crash(take_over, prepare, at_most=200, step=step, refusal=refusal):
        job = for_next_holder(job_of(tmp_path / str(n)))
        assert carry_out(job) == [4, 5] and result(job) == straight
        assert list((Path(job.root) / "attempts").iterdir()) == []


def test_checkpoints_of_another_machine_stay_beside_newer_ones(job: Job, straight: Result) -> None:
    """A worker that has got farther itself finds the folder of a worker on another kind of machine."""
    assert carry_out(job, stop_after=3) == [1, 2, 3]
    attempt = Store(job.root).attempt_dir(job.run_id)
    other = attempt.with_name(f"{job.run_id}.{holder_name(1)}")
    shutil.copytree(attempt, other)
    (attempt / "checkpoint-00000002.pt").unlink()
    (other / "checkpoint-00000003.pt").unlink()
    (other / FINGERPRINT).write_text("{}")
    files: list[str] = []
    assert carry_out(job, {4: lambda: files.extend(p.name for p in attempt.glob("set-aside-*/*"))}) == [4, 5]
    assert "checkpoint-00000002.pt" in files and result(job) == straight


def test_who_comes_late_is_not_the_holder(job: Job, straight: Result) -> None:
    """A worker that was stopped before it began, and begins when the next one is at work."""
    late = for_next_holder(job)
    Store(job.root, late.holder).open_attempt(job.run_id)
    assert carry_out(for_next_holder(job), {2: lambda: carry_out(late)}) == [1, 2, 3, 4, 5]
    assert result(job) == straight


def test_links_in_what_another_has_left_are_not_followed(job: Job, straight: Result, tmp_path: Path) -> None:
    first, victim = for_next_holder(job), tmp_path / "victim"
    victim.write_text("mine")
    carry_out(first, stop_after=3)
    log = Store(job.root, first.holder).attempt_dir(job.run_id) / "metrics.jsonl"
    log.unlink()
    log.symlink_to(victim)
    assert (
        carry_out(for_next_holder(job)) == [1, 2, 3, 4, 5] and result(job) == straight and victim.read_text() == "mine"
    )


@pytest.mark.parametrize(
    "name", ["0123456789ab.1", "0123456789ab.0001-xyz", "x.0001-00000000", "0123456789ab.left", ""]
)
def test_a_folder_of_another_name_is_no_attempt(name: str) -> None:
    assert parse_attempt_name(name) is None


def test_holders_are_numbered_and_no_two_are_the_same(job: Job) -> None:
    store = Store(job.root)
    names = [store.next_holder(job.run_id) for _ in range(2)]
    assert names[0] != names[1] and {name[:5] for name in names} == {"0001-"}
    Store(job.root, names[0]).open_attempt(job.run_id)
    assert store.next_holder(job.run_id).startswith("0002-")
    attempt = parse_attempt_name(f"{job.run_id}.{holder_name(12)}")
    assert attempt is not None and (attempt.run_id, attempt.number, attempt.active) == (job.run_id, 12, True)


def test_status_knows_a_worker_by_its_lease(job: Job) -> None:
    states: list[str] = []

    def look() -> None:
        (row,) = run_states(Store(job.root))["runs"]
        states.append(f"{row['id']} {row['state']} {row['phase']}")

    carry_out(for_next_holder(job), {2: look}, stop_after=3)
    look()
    assert states == [f"{job.run_id} running 2", f"{job.run_id} stopped 3"]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_worker_writes_nothing_where_its_folder_was(job: Job, tmp_path: Path, is_replaced: bool) -> None:
    """A results folder that was deleted under a sweep, and made anew by the next one."""
    attempt = Store(job.root).attempt_dir(job.run_id)

    def move_away() -> None:
        attempt.rename(tmp_path / "moved")
        if is_replaced:
            attempt.mkdir()
            (attempt / ".lock").touch()

    with pytest.raises(Interrupted, match="was moved, removed or replaced"):
        worker.execute(job, lambda m: move_away() if m.get("phase") == 2 else None, lambda: False)
    assert [path.name for path in attempt.parent.rglob("*")] == ([job.run_id, ".lock"] if is_replaced else [])
    assert (tmp_path / "moved" / "checkpoint-00000001.pt").is_file()
