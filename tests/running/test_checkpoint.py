"""Checkpoints survive what disks and processes do, and load nothing that can execute."""

from __future__ import annotations

import errno
import fcntl
import gc
import hashlib
import io
import os
import pickle
import signal
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from crash import every_crash
from raising import raising

from staleharness.errors import UserError
from staleharness.running import checkpoint_recovery, run_folder, worker
from staleharness.running.run_record import fingerprint_differences
from staleharness.store.attempt_folders import has_plain_files
from staleharness.store.stored_run import PARTS
from staleharness.training import checkpoint
from staleharness.training.phase_record import PhaseRecord, Scores

State = dict[str, object]


def state(phase: int) -> State:
    return {"phase": phase, "weights": torch.full((3,), float(phase))}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def phase_of(found: State | None) -> object:
    return None if found is None else found["phase"]


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    for phase in (1, 2, 9, 10, 11):
        checkpoint.save(tmp_path, phase, state(phase))
    assert names(tmp_path) == ["checkpoint-00000010.pt", "checkpoint-00000011.pt"]
    found = checkpoint.load_newest(tmp_path)
    assert found is not None and torch.equal(found["weights"], torch.full((3,), 11.0))


def test_a_plugins_checkpoint_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-best.pt").write_bytes(b"weights" * 1000)
    (tmp_path / "checkpoint-best").mkdir()
    for phase in (1, 2, 3):
        checkpoint.save(tmp_path, phase, state(phase))
    ours = ["checkpoint-00000002.pt", "checkpoint-00000003.pt"]
    assert names(tmp_path) == [*ours, "checkpoint-best", "checkpoint-best.pt"]
    assert [path.name for path in checkpoint.newest_first(tmp_path)] == ours[::-1] and has_plain_files(tmp_path)
    assert checkpoint.size(tmp_path) == (tmp_path / ours[0]).stat().st_size
    for name in ours:
        (tmp_path / name).write_bytes(b"")
    assert checkpoint.load_newest(tmp_path) is None
    assert names(tmp_path) == ["checkpoint-best", "checkpoint-best.pt"]


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoint.load_newest(tmp_path) is None


def flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "cut inside its hash": lambda content: content[:20],
    "empty": lambda content: b"",
    "zeros": lambda content: bytes(len(content)),
    "one bit flipped": flip,
    "longer": lambda content: content + b"x",
}


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    for phase in (1, 2):
        checkpoint.save(tmp_path, phase, state(phase))
    newest = tmp_path / "checkpoint-00000002.pt"
    newest.write_bytes(DAMAGES[how](newest.read_bytes()))
    assert phase_of(checkpoint.load_newest(tmp_path)) == 1
    assert "checkpoint-00000002.pt is damaged" in caplog.text


def test_with_both_damaged_the_run_starts_over(tmp_path: Path) -> None:
    for phase in (50, 51):
        checkpoint.save(tmp_path, phase, state(phase))
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    assert checkpoint.load_newest(tmp_path) is None
    checkpoint.save(tmp_path, 3, state(3))
    assert phase_of(checkpoint.load_newest(tmp_path)) == 3


@pytest.mark.parametrize("refusal", [None, errno.ENOSPC, errno.EIO], ids=str)
def test_a_checkpoint_that_cannot_be_written_leaves_those_before_it(tmp_path: Path, refusal: int | None) -> None:
    for phase in (1, 2):
        checkpoint.save(tmp_path, phase, state(phase))
    for _ in every_crash(lambda n: checkpoint.save(tmp_path, 3, state(3)), refusal=refusal):
        assert phase_of(checkpoint.load_newest(tmp_path)) in (2, 3)
        assert refusal is None or not [name for name in names(tmp_path) if name.startswith(".")]
    assert phase_of(checkpoint.load_newest(tmp_path)) == 3


def test_a_large_state_is_neither_written_nor_read_by_way_of_a_copy(tmp_path: Path) -> None:
    large = {"phase": 1, "weights": torch.arange(8_000_000.0), "small": [torch.ones(3)] * 100}
    tracemalloc.start()
    checkpoint.save(tmp_path, 1, large)
    found = checkpoint.load_newest(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None and torch.equal(found["weights"], large["weights"])  # type: ignore[arg-type]
    assert peak < 8e6  # of 32 MB; what torch itself allocates does not count
    content = (tmp_path / "checkpoint-00000001.pt").read_bytes()
    assert content[:32] == hashlib.sha256(content[32:]).digest()


def limit_disk(monkeypatch: pytest.MonkeyPatch, folder: Path, room: int) -> None:
    """Let the files of a folder take no more than `room` bytes together."""

    class SmallDisk(io.FileIO):
        def write(self, data: Any) -> int:
            if sum(path.stat().st_size for path in folder.iterdir()) + memoryview(data).nbytes > room:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data)

    monkeypatch.setattr(os, "fdopen", lambda handle, mode: SmallDisk(handle, "w"))


@pytest.mark.parametrize("megabytes", [0, 1, 5, 12])
@pytest.mark.long
def test_a_disk_full_during_a_large_state_keeps_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int
) -> None:
    checkpoint.save(tmp_path, 1, state(1))
    large = {f"weights{i}": torch.ones(1_000_000) for i in range(4)}
    with monkeypatch.context() as patch:
        limit_disk(patch, tmp_path, 10_000 + megabytes * 1_000_000)
        with pytest.raises(OSError, match="No space"):
            checkpoint.save(tmp_path, 2, large)
        gc.collect()
    assert names(tmp_path) == ["checkpoint-00000001.pt"]
    assert phase_of(checkpoint.load_newest(tmp_path)) == 1


@pytest.mark.parametrize("damaged", [False, True])
def test_the_older_of_two_gives_way_where_the_disk_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    for phase in (1, 2):
        checkpoint.save(tmp_path, phase, state(phase))
    newer = tmp_path / "checkpoint-00000002.pt"
    if damaged:
        newer.write_bytes(flip(newer.read_bytes()))
    with monkeypatch.context() as patch:
        limit_disk(patch, tmp_path, int(2.5 * newer.stat().st_size))
        if damaged:  # then the older is all there is
            with pytest.raises(OSError, match="No space"):
                checkpoint.save(tmp_path, 3, state(3))
        else:
            checkpoint.save(tmp_path, 3, state(3))
    left = (1, 2) if damaged else (2, 3)
    assert names(tmp_path) == [f"checkpoint-{phase:08d}.pt" for phase in left]
    assert phase_of(checkpoint.load_newest(tmp_path)) == (1 if damaged else 3)


def test_a_disk_with_room_for_one_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for phase in (1, 2):
        checkpoint.save(tmp_path, phase, state(phase))
    with monkeypatch.context() as patch:
        limit_disk(patch, tmp_path, (tmp_path / "checkpoint-00000002.pt").stat().st_size)
        with pytest.raises(OSError, match="No space"):
            checkpoint.save(tmp_path, 3, state(3))
    assert names(tmp_path) == ["checkpoint-00000002.pt"]
    assert phase_of(checkpoint.load_newest(tmp_path)) == 2


def test_a_crash_while_one_gives_way_leaves_a_loadable_checkpoint(tmp_path: Path) -> None:
    def save(n: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            refused: list[Path] = []
            write = checkpoint._write

            def once(path: Path, content: State) -> None:
                if not refused:
                    refused.append(path)
                    raise OSError(errno.EDQUOT, "Disk quota exceeded")
                write(path, content)

            patch.setattr(checkpoint, "_write", once)
            checkpoint.save(tmp_path, 3, state(3))

    def prepare(n: int) -> None:
        for path in tmp_path.iterdir():
            path.unlink()
        for phase in (1, 2):
            checkpoint.save(tmp_path, phase, state(phase))

    for _ in every_crash(save, prepare):
        assert phase_of(checkpoint.load_newest(tmp_path)) in (2, 3)
    assert names(tmp_path) == ["checkpoint-00000002.pt", "checkpoint-00000003.pt"]


class Training:
    """A simulation of 21 phases that take 10 s each on a clock of its own."""

    def __init__(self) -> None:
        self.phase, self.spec, self.clock = 0, SimpleNamespace(phases=21), 0.0

    def __iter__(self) -> Iterator[PhaseRecord]:
        while self.phase < self.spec.phases:
            self.clock += 10.0
            self.phase += 1
            scores = Scores({"sampled": [1.0]}, {"sampled": [1]}, 1) if self.phase == 21 else None
            metrics = {"phase": self.phase, "steps": 1, "lag_histogram": [1], "eval_sampled": 1.0}
            yield PhaseRecord(metrics, dict.fromkeys(PARTS, 1.0), scores)


def saved_phases(monkeypatch: pytest.MonkeyPatch, every: float, saving: float) -> list[int]:
    """After which phases a checkpoint is written, when writing one takes so long."""
    training, found = Training(), []
    monkeypatch.setattr(time, "monotonic", lambda: training.clock)

    class Folder(run_folder.RunFolder):
        job: Any = SimpleNamespace(checkpoint_seconds=every)
        next_checkpoint = every

        def __init__(self) -> None: ...
        def write(self, record: PhaseRecord) -> None: ...

        def checkpoint(self, simulation: Any) -> None:
            training.clock += saving
            found.append(training.phase)

    worker._run_phases(training, Folder(), lambda told: None, lambda: False)  # type: ignore[arg-type]
    return found


def test_checkpoints_take_at_most_a_twentieth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert saved_phases(monkeypatch, 30.0, 0.1) == [4, 8, 12, 16, 20]
    # 40 to 44 s; 4 s are 5 % of the 80 s that end at 120 s, so the next is that after phase 12, at 124 s
    assert saved_phases(monkeypatch, 30.0, 4.0) == [4, 12, 20]
    assert saved_phases(monkeypatch, 0.0, 4.0) == list(range(1, 21))  # after every phase, as was asked


class Malicious:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_checkpoint_that_would_execute_something_is_refused(tmp_path: Path, how: str) -> None:
    victim, stream = tmp_path / "victim", io.BytesIO()
    content = {"phase": Malicious(victim)}
    if how == "pickle":
        pickle.dump(content, stream, protocol=2)
    else:
        torch.save(content, stream)
    payload = stream.getvalue()
    file = tmp_path / "checkpoint-00000002.pt"
    file.write_bytes(hashlib.sha256(payload).digest() + payload)
    with pytest.raises(checkpoint.Unusable, match="holds more than tensors and numbers"):
        checkpoint.load(file)
    assert not victim.exists() and file.exists()


@pytest.mark.parametrize("payload", [b"", b"no archive", b"PK\x03\x04 nor this"])
def test_a_file_that_torch_cannot_read_is_refused(tmp_path: Path, payload: bytes) -> None:
    file = tmp_path / "checkpoint-00000002.pt"
    file.write_bytes(hashlib.sha256(payload).digest() + payload)
    with pytest.raises(checkpoint.Unusable, match=r"cannot be read by torch|holds more than"):
        checkpoint.load_newest(tmp_path)
    assert file.exists()


LACK: dict[str, Exception] = {
    "of Python's memory": MemoryError(),
    "of torch's memory": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 8 bytes"),
    "of a GPU's memory": torch.OutOfMemoryError("CUDA out of memory."),
    "of the system's memory": OSError(12, "Cannot allocate memory"),
    "of a disk that answers": OSError(5, "Input/output error"),
}


@pytest.mark.parametrize("lack", LACK)
def test_a_lack_of_memory_says_nothing_of_the_checkpoint_which_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: str
) -> None:
    for phase in (1, 2):
        checkpoint.save(tmp_path, phase, state(phase))
    load = raising(LACK[lack])
    with monkeypatch.context() as patch, pytest.raises(type(LACK[lack])):
        patch.setattr(torch, "load", load)
        checkpoint.load_newest(tmp_path)
    assert names(tmp_path) == ["checkpoint-00000001.pt", "checkpoint-00000002.pt"]
    assert phase_of(checkpoint.load_newest(tmp_path)) == 2


def test_tensors_are_loaded_to_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU holds the simulation that they are copied to already."""
    load, places = torch.load, []
    monkeypatch.setattr(
        torch, "load", lambda *given, **more: (places.append(more["map_location"]), load(*given, **more))[1]
    )
    checkpoint.save(tmp_path, 1, state(1))
    checkpoint.load_newest(tmp_path)
    assert places == ["cpu"]


SHA = hashlib.sha256(b"").hexdigest()
REFUSED: dict[str, tuple[State, str]] = {
    "another phase": ({"simulation": {"phase": 5, "trained": "null"}}, "holds another phase, 5"),
    "a phase that is not logged": (
        {"simulation": {"phase": 4, "trained": "[{}, {}]"}},
        "metrics.jsonl ends at another",
    ),
    "a phase that is none": ({"simulation": {"phase": "4", "trained": "null"}}, "holds another phase, 4"),
    "no phase": ({"simulation": {}}, "was not made by this version"),
    "lines that are gone": ({"logs": {"metrics.jsonl": (300, SHA)}}, "lines that metrics.jsonl has lost"),
    "other lines": ({"logs": {"metrics.jsonl": (3, SHA)}}, "metrics.jsonl was changed"),
    "another run": ({"run": "another"}, "belongs to run another"),
    "another machine": ({"fingerprint": '{"cpu": "other"}'}, "cpu: other -> None"),
    "no run": ({"run": None}, "belongs to run None"),
    "logs of another shape": ({"logs": [1, 2]}, "was not made by this version"),
    "a digest that is none": ({"logs": {"metrics.jsonl": ("many", 3)}}, "was not made by this version"),
    "an earlier version's": ({"fingerprint": 3}, "was not made by this version"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_unusable_checkpoint_refuses_the_run_unless_restarted(tmp_path: Path, what: str) -> None:
    log = b"{}\n{}\n{}\n{}\n"
    (tmp_path / "metrics.jsonl").write_bytes(log)
    (tmp_path / "timing.jsonl").write_bytes(log)
    content, reason = REFUSED[what]
    sha = hashlib.sha256(log).hexdigest()
    logs = {"metrics.jsonl": (len(log), sha), "timing.jsonl": (len(log), sha)}
    simulation = {"phase": 4, "trained": "null"}
    fits = {"run": "run", "fingerprint": "{}", "logs": logs, "simulation": simulation}
    if isinstance(content.get("logs"), dict):
        content = {"logs": logs | content["logs"]}  # type: ignore[operator]
    checkpoint.save(tmp_path, 4, fits | content)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    class New(SimpleNamespace):
        def load_state_dict(self, state: State) -> None:
            vars(self).update(state)

        def close(self) -> None: ...

    def resume(restart: bool) -> New:
        return checkpoint_recovery.resume(tmp_path, "run", lambda: New(phase=0), {}, restart)  # type: ignore[arg-type,return-value]

    with pytest.raises(UserError, match=f"{reason}.*nothing was deleted.*--restart") as refusal:
        resume(False)
    assert "\n" not in str(refusal.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert resume(True).phase == 0
    (place,) = checkpoint_recovery.folders_set_aside(tmp_path)
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before
    assert names(tmp_path) == ["metrics.jsonl", place.name, "timing.jsonl"]
    assert (tmp_path / "metrics.jsonl").read_bytes() == b""
    assert resume(False).phase == 0  # once told to start over, it need not be told again


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_plugins_forked_process_does_not_keep_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_folder.hold_by_lock(tmp_path):
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
    try:
        monkeypatch.setattr(run_folder, "PATIENCE", 600.0)  # the child has to get to run
        with run_folder.hold_by_lock(tmp_path):
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_an_attempt_has_one_writer_who_waits_for_another_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "PATIENCE", 0.0)
    refused = pytest.raises(UserError, match="another process is still writing")
    with run_folder.hold_by_lock(tmp_path), refused, run_folder.hold_by_lock(tmp_path):
        pass
    with run_folder.hold_by_lock(tmp_path):
        pass


@pytest.mark.parametrize("made_anew", [False, True])
def test_a_lock_is_worth_nothing_once_the_attempt_was_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made_anew: bool
) -> None:
    folder, flock = tmp_path / "attempt", fcntl.flock

    def late(handle: int, operation: int) -> None:
        """The holder publishes between our opening the lock and our having it."""
        monkeypatch.setattr(fcntl, "flock", flock)
        folder.rename(tmp_path / "published")
        if made_anew:
            folder.mkdir()
            (folder / ".lock").touch()
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    assert run_folder.lock(folder) is None
    with run_folder.hold_by_lock(folder):
        assert (folder / ".lock").is_file()


def test_checkpoints_of_another_release_are_used() -> None:
    """Another version of staleharness computes the same, or has another `MATHS_VERSION`; another Python may not."""
    fingerprints = [{"staleharness": "0.3.0", "maths": 1, "python": "3.11.7"}, {"staleharness": "0.4.0", "maths": 1}]
    fingerprints[1] |= {"python": "3.11.7"}
    assert fingerprint_differences(*fingerprints) == []
    fingerprints[1] |= {"maths": 2, "python": "3.11.8"}
    assert fingerprint_differences(*fingerprints) == ["maths: 1 -> 2", "python: 3.11.7 -> 3.11.8"]
