"""The runner for Slurm in what a real one does not do when it is asked to: on the stand-in alone. And what needs no
cluster: options, arrays on disk, words.
"""

from __future__ import annotations

import errno
import json
import shutil
import signal
from pathlib import Path

import pytest
from raising import raising
from slurm_clusters import StandIn
from slurm_driving import Act, Drive, job, lives, once

from staleharness.errors import UserError
from staleharness.running.runner_interface import Event, ResourceRequest, RunEnd, RunProgress, RunStart, RunWait
from staleharness.running.runners import make_runner, slurm
from staleharness.running.runners.slurm import SlurmRunner
from staleharness.running.slurm import commands, job_array
from staleharness.running.slurm.commands import SlurmError, State, compress, parse_options
from staleharness.running.slurm.job_array import JobArray, SlurmTask


@pytest.fixture(autouse=True)
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm, "TASK", "light_task")


def test_a_flapping_task_is_given_up(stand_in: StandIn, tmp_path: Path) -> None:
    def requeue_again(runner: SlurmRunner, event: Event) -> None:
        if isinstance(event, RunStart):
            stand_in.fault("preempt")

    drive = Drive(SlurmRunner(), [job(tmp_path, 0, phases=1000)], requeue_again)
    assert drive.ends[0].message is None and drive.ends[0].failure_class == "Flapping"
    assert drive.ends[0].cause.startswith("being put back in the queue more than 4 times in 10 minutes (task ")
    state, restarts = stand_in.tasks()["1_0"]
    assert state in ("CANCELLED", "FAILED") and restarts == 5


@pytest.mark.faults
def test_a_task_that_is_put_back_now_and_then_is_not(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("staleharness.running.slurm.job_array.FLAPS", (4, 0.1))
    count = 0

    def requeue_again(runner: SlurmRunner, event: Event) -> None:
        nonlocal count
        if isinstance(event, RunProgress) and count < 6 and event.content.get("phase", 0) > 2 * count:
            count += 1
            stand_in.fault("preempt")

    drive = Drive(SlurmRunner(), [job(tmp_path, 0, phases=40)], requeue_again)
    assert drive.words() == {0: "done"} and count == 6


@pytest.mark.faults
@pytest.mark.parametrize("accounting", [False, True])
def test_accounting_knows_a_task_that_left_the_queue(
    stand_in: StandIn, tmp_path: Path, accounting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.set(remembers=0.0, accounting=accounting)
    monkeypatch.setattr(slurm, "LOOKS", (1.0, 1.0))  # so that it ends, and is forgotten, between two
    jobs = [job(tmp_path, 0, 10), job(tmp_path, 1, 3, ends="dies"), job(tmp_path, 2, 60)]
    drive = Drive(SlurmRunner(), jobs)
    assert drive.words() == {0: "done", 1: None, 2: "done"}
    said = "exit code 3 (task 1_1" if accounting else "a cause that Slurm no longer knows (task 1_1)"
    assert drive.ends[1].cause.startswith(said)


def test_a_requeue_that_accounting_forgets_loses_no_message(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, array = SlurmRunner(), JobArray.make(tmp_path, [job(tmp_path, 0)], [])
    array.set_id("17")
    runner.arrays.append(array)
    runner.start(array.jobs[0])
    runner.runs[array.jobs[0].run_id].assign(array, 0, State("RUNNING", restarts=1))
    array.messages(0, 0).write_text('{"phase": 1, "phases": 20}\n' * 20)  # before the requeue
    array.messages(0, 1).write_text('{"phase": 20}\n')
    assert [event.content for event in runner._read(0.0)] == [{"phase": 20}]  # type: ignore[union-attr]
    with open(array.messages(0, 1), "a") as stream:
        stream.write('{"event": "done"}\n')
    monkeypatch.setattr(commands, "look", lambda arrays: {})
    monkeypatch.setattr(commands, "look_up", lambda task: State("COMPLETED"))
    (end,) = runner._look(1.0)
    assert isinstance(end, RunEnd) and end.message == {"event": "done"}


def test_a_message_that_a_full_disk_cut_off_is_passed_over(tmp_path: Path) -> None:
    array = JobArray.make(tmp_path, [job(tmp_path, 0)], [])
    array.set_id("17")
    task = SlurmTask(array.jobs[0])
    task.assign(array, 0, State("RUNNING"))
    array.messages(0, 0).write_text('{"phase": 1}\n{"pha{"phase": 3}\n4\n{"phase": 5}\n{"ph')
    assert [event.content for event in task.read_messages()] == [{"phase": 1}, {"phase": 5}]


@pytest.mark.parametrize(
    "text, again",
    [
        ("slurm_load_jobs error: Zero Bytes were transmitted or received", True),
        ("slurm_load_jobs error: Slurm backup controller in standby mode", True),
        ("Batch job submission failed: Message receive failure", True),
        ("Batch job submission failed: Invalid account or account/partition combination specified", False),
    ],
)
def test_what_a_busy_controller_says_is_no_refusal(text: str, again: bool) -> None:
    assert SlurmError(text).is_transient is again


def test_time_out_differs_from_memory_and_does_not_repeat(stand_in: StandIn, tmp_path: Path) -> None:
    """Both have begun and do nothing; then three seconds pass, of which they have two."""

    begun = set()

    def act(runner: SlurmRunner, event: Event) -> None:
        if isinstance(event, RunProgress):
            begun.add(event.run_id)
            if len(begun) == 2:
                stand_in.fault("out-of-memory", "1_1")
                stand_in.set(clock=4.0)

    stand_in.set(clock=1.0, kill_wait=-1.0)
    jobs = [job(tmp_path, n, phases=9, nap=600.0) for n in range(2)]
    drive = Drive(SlurmRunner(2, "--time=0:02 --signal=B:USR1@1"), jobs, act)
    assert drive.ends[0].failure_class == "TimeOut" and "before it had done one phase" in drive.ends[0].cause
    assert drive.ends[1].failure_class == "OOM" and "--mem" in drive.ends[1].cause
    assert lives(tmp_path, 0) == 1


def test_a_task_that_times_out_after_some_phases_goes_on(stand_in: StandIn, tmp_path: Path) -> None:
    """A task stays at its gate until it is warned, as it is after the first of the two seconds that it has."""
    stand_in.set(clock=1.0)
    act = once(lambda runner: stand_in.set(clock=2.5), phase=14)
    drive = Drive(SlurmRunner(1, "--time=0:02 --signal=B:USR1@1"), [job(tmp_path, 0, gate=15)], act)
    assert drive.words() == {0: "done"}
    assert drive.phases(0) == [*range(1, 21)] and lives(tmp_path, 0) == 2


def test_a_submission_whose_answer_is_lost_is_not_made_again(
    stand_in: StandIn, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in.set(deaf=True)
    drive = Drive(SlurmRunner(), [job(tmp_path, 0)])
    assert drive.words() == {0: "done"} and lives(tmp_path, 0) == 1
    assert len(stand_in.calls("sbatch")) == 1


def test_fewer_tasks_are_submitted_where_so_many_are_not_allowed(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = slurm.commands.submit

    def limit(command: list[str], count: int, *rest: object) -> str:
        if count > 1:
            raise SlurmError("Batch job submission failed: Job violates accounting/QOS policy (job submit limit)")
        return submit(command, count, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(slurm.commands, "submit", limit)
    drive = Drive(SlurmRunner(), [job(tmp_path, n) for n in range(3)])
    assert drive.words() == dict.fromkeys(range(3), "done")
    assert len(stand_in.calls("sbatch")) == 3


def test_a_task_that_is_no_longer_known_is_submitted_anew(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm.commands, "requeue", raising(SlurmError("Requested operation is presently disabled")))
    act = once(lambda runner: stand_in.warn("1_0"), gate=tmp_path)
    drive = Drive(SlurmRunner(), [job(tmp_path, 0, gate=15)], act)
    assert drive.phases(0) == [*range(1, 21)] and lives(tmp_path, 0) == 2
    assert len(stand_in.calls("sbatch")) == 2


@pytest.mark.parametrize("ends", ["done", "interrupted"])
def test_a_task_that_stays_after_its_last_word_is_ended(
    stand_in: StandIn, tmp_path: Path, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "GRACE", 0.5)
    stand_in.set(kill_wait=0.2)
    act = once(lambda runner: ends == "interrupted" and stand_in.warn("1_0"), gate=tmp_path)
    drive = Drive(SlurmRunner(), [job(tmp_path, 0, stays=60.0, gate=15)], act)
    assert drive.words() == {0: "done"} and lives(tmp_path, 0) == (1 if ends == "done" else 2)


def test_a_task_that_could_not_be_launched_is_let_go_on(stand_in: StandIn, tmp_path: Path) -> None:
    held = False

    def hold(runner: SlurmRunner, event: Event) -> None:
        nonlocal held
        if isinstance(event, RunWait) and not held:
            held = True
            stand_in.fault("hold", "1_0")
            stand_in.set(room=8)

    stand_in.set(room=0)
    assert Drive(SlurmRunner(), [job(tmp_path, 0)], hold).words() == {0: "done"}
    assert held and stand_in.calls("scontrol")[-1] == "scontrol release 1_0"


@pytest.mark.parametrize("name", ["staleharness-0123abcd", "staleharness-0123abcd,theirs"])
def test_a_foreign_array_id_is_never_used(stand_in: StandIn, tmp_path: Path, name: str) -> None:
    stand_in.set(room=0)
    commands.submit(["sleep", "60"], 2, 2, "theirs", tmp_path / "out", [f"--chdir={tmp_path}", "--signal=B:USR1@1"])
    (theirs,) = {task.partition("_")[0] for task in stand_in.tasks()}
    array = JobArray.make(tmp_path, [job(tmp_path, 0), job(tmp_path, 1)], ["--time=9"])
    array.set_id(theirs)
    array.folder.rename(array.folder.with_name(name))
    act: Act = lambda runner, event: isinstance(event, RunWait) and stand_in.set(room=8)  # noqa: E731
    assert Drive(SlurmRunner(), [job(tmp_path, 0)], act).words() == {0: "done"}
    assert {f"{theirs}_0", f"{theirs}_1"} <= set(stand_in.tasks()) and lives(tmp_path, 0) == 1
    assert not any(theirs in call.split("_")[0] for call in stand_in.calls("scancel"))


def test_an_array_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "slurm").symlink_to(tmp_path / "elsewhere")
    for call in (lambda: JobArray.make(tmp_path, [], []), lambda: list(JobArray.read_all(tmp_path))):
        with pytest.raises(UserError, match="is a symbolic link"):
            call()


def test_arrays_that_cannot_be_read_are_forgotten(tmp_path: Path) -> None:
    whole = JobArray.make(tmp_path, [job(tmp_path, 0)], [])
    for content in ("", "{}", '{"jobs": [{"run": 1}], "options": []}'):
        folder = tmp_path / "slurm" / f"staleharness-{len(content):08x}"
        folder.mkdir()
        (folder / "array.json").write_text(content)
    assert [array.name for array in JobArray.read_all(tmp_path)] == [whole.name]
    assert [path.name for path in (tmp_path / "slurm").iterdir()] == [whole.name]
    assert json.loads((whole.folder / "array.json").read_text())["jobs"][0]["run_id"] == f"{0:012x}"


def test_the_files_of_an_array_that_cannot_be_read_now_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks wait in Slurm, and a network file system gives an error."""
    array = JobArray.make(tmp_path, [job(tmp_path, 0)], [])
    array.set_id("17")
    with monkeypatch.context() as patch:
        patch.setattr(job_array, "read_json", raising(OSError(errno.EIO, "Input/output error")))
        assert list(JobArray.read_all(tmp_path)) == []
    assert [array.id for array in JobArray.read_all(tmp_path)] == ["17"]


def test_options_are_words_for_sbatch_and_nothing_else() -> None:
    assert parse_options("--partition=gpu --time=4:00:00 --gres=gpu:a100:1 --exclusive --mem=8G") == [
        "--partition=gpu",
        "--time=4:00:00",
        "--gres=gpu:a100:1",
        "--exclusive",
        "--mem=8G",
    ]
    assert parse_options("") == [] and parse_options("--signal=B:USR1@600") == ["--signal=B:USR1@600"]


@pytest.mark.parametrize(
    "text",
    [
        "-p gpu",
        "--time 4:00:00",
        "gpu",
        "--comment='a b'",
        "--comment=$(id)",
        "--comment=`id`",
        "--comment=a;b",
        "--partition='",
        "--partition=gpu\n--wrap=id",
        "--wrap=id",
        "--array=0-9",
        "--output=/etc/passwd",
        "--Time=1",
        "--signal=USR2@10",
        "--partition=ü",
        "--job-name=x",
        "--clusters=other",
        "--arra=0-5",
        "--test",
        "--export=NONE",
        "--partition=\0",
    ],
)
def test_other_options_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError) as refuse:
        parse_options(text)
    assert str(refuse.value).startswith("SLURM") and "\n" not in str(refuse.value)


def test_a_machine_without_slurm_is_told_so_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"^RUNNER=slurm: sbatch is not on the path"):
        make_runner("slurm", ResourceRequest(4))


def test_tasks_are_written_together() -> None:
    assert compress(["17_3", "17_1", "9_0", "17_2", "17_7"]) == ["9_[0]", "17_[1-3,7]"]
    assert compress([]) == []


def test_an_exit_code_is_no_kill() -> None:
    from staleharness.running.slurm.job_array import _process_end

    assert _process_end(State("FAILED", status=75 << 8)) == ("Exited", "exit code 75")
    assert _process_end(State("FAILED", status=signal.SIGSEGV)) == ("Killed", "signal SIGSEGV")
    assert _process_end(State("FAILED")) == ("Killed", "FAILED in Slurm")
    assert _process_end(State("REVOKED", status=0)) == ("Killed", "REVOKED in Slurm")


def test_a_gpu_is_needed_on_nodes_and_not_where_jobs_start(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert make_runner("slurm", ResourceRequest(4, device="cuda")).capacity == 4
    with pytest.raises(UserError, match="sees no GPU on this machine"):
        make_runner("local", ResourceRequest(4, device="cuda"))
    with pytest.raises(UserError, match=r"^RUNS_PER_GPU is not for RUNNER=slurm"):
        make_runner("slurm", ResourceRequest(device="cuda", runs_per_gpu=2))


def test_the_memory_of_a_run_is_asked_for_unless_the_user_does(stand_in: StandIn) -> None:
    assert SlurmRunner(1, "--time=5", memory=2**31).options == ["--time=5", "--mem=2048M"]
    assert SlurmRunner(1, "--mem-per-cpu=1G", memory=2**31).options == ["--mem-per-cpu=1G"]
    assert SlurmRunner(1, "--mem=1G", memory=2**31).options == ["--mem=1G"]
    assert SlurmRunner(1, "--mem-bind=local", memory=2**31).options == ["--mem-bind=local", "--mem=2048M"]
    assert SlurmRunner(1).options == []
