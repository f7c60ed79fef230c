"""SIGKILL, timed from progress: nothing is lost, nothing is counted twice, and no bit is another."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import kill_points
import pytest
from killing import QUICKLY, Killer, files, records, swept
from known_plugins import loaded_plugins
from places import HELPERS
from sweeping import TINY, AtPhase, environment, relatives, sweep_here, wait_until

from staleharness.errors import UserError
from staleharness.running.plan import PlannedRun, plan
from staleharness.running.runner_interface import Job
from staleharness.running.runners import local
from staleharness.running.runners.local import LocalPool
from staleharness.store.store import Store
from staleharness.study import sweep_request

TOY = HELPERS / "toy_kind.py"


@pytest.fixture
def toy() -> Iterator[None]:
    with loaded_plugins(TOY):
        yield


def toys(seeds: int = 6) -> tuple[PlannedRun, ...]:
    return plan(sweep_request(env="toy", k="4", algo="spo", seeds=str(seeds))).runs


def hoppers() -> tuple[PlannedRun, ...]:
    asked = {"env": "Hopper", "k": "1,4", "algo": "ppo_clip", "seeds": "1", "settings": TINY}
    return plan(sweep_request(**asked, steps=str(64 * 60))).runs


def kill_workers(tmp_path: Path, runs: tuple[PlannedRun, ...], kills: int, apart: int) -> None:
    """Sweeps with `kills` killed workers between them, folder by folder, each until it is complete."""
    swept(tmp_path / "straight", runs)
    straight = records(tmp_path / "straight")
    assert len(straight) == len(runs)
    killer, round_ = Killer(0, kills, apart), 0
    while len(killer.killed) < kills:
        round_ += 1
        assert round_ <= kills, "no worker lives long enough to be killed"
        out, finished = tmp_path / str(round_), dict[str, str]()
        while True:
            killer.pool = LocalPool(2)
            outcome = swept(out, runs, killer)
            hashes = files(out)
            assert finished.items() <= hashes.items(), "what was finished has changed"
            assert {failure["class"] for failure in outcome.failed.values()} <= {"Killed"}
            assert sorted([*outcome.done, *outcome.skipped, *outcome.failed]) == sorted(r.run_id for r in runs)
            finished = hashes
            if not outcome.failed:
                break
        assert records(out) == straight
        assert list((out / "attempts").iterdir()) == [] and not (out / "damaged").exists()


@pytest.mark.usefixtures("toy")
@pytest.mark.long
def test_a_few_killed_workers(tmp_path: Path) -> None:
    kill_workers(tmp_path, toys(3), kills=5, apart=60)


# A sweep that kills itself, or itself and all its workers and their server, at the n-th phase that it hears of.
SWEEP = """
import os, signal, sys
from pathlib import Path
from killing import swept
from sweeping import Silent
from test_kills import hoppers, toys

class Suicidal(Silent):
    left = int(sys.argv[3])
    def on_phase(self, run, progress):
        self.left -= 1
        if self.left == 0:
            os.killpg(0, signal.SIGKILL) if sys.argv[4] == "all" else os.kill(os.getpid(), signal.SIGKILL)

swept(Path(sys.argv[1]), {"toys": toys, "hoppers": hoppers}[sys.argv[2]](), Suicidal())
"""


def kill_sweeps(tmp_path: Path, name: str, runs: tuple[PlannedRun, ...], kills: int, apart: int) -> None:
    """Sweeps that are killed, alone or with everything they have started, `kills` times in all."""
    swept(tmp_path / "straight", runs)
    straight, killed, draw, round_ = records(tmp_path / "straight"), 0, random.Random(0), 0
    path = os.pathsep.join([environment()["PYTHONPATH"], str(HELPERS), str(Path(__file__).parent)])
    while killed < kills:
        round_ += 1
        out, finished = tmp_path / str(round_), dict[str, str]()
        while killed < kills:
            whom = draw.choice(["all", "sweep"])
            words = [sys.executable, "-c", SWEEP, str(out), name, str(draw.randint(1, apart)), whom]
            variables = environment(PYTHONPATH=path, STALEHARNESS_PLUGINS=str(TOY))
            ended = subprocess.run(words, env=variables, capture_output=True, text=True, start_new_session=True)
            assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
            hashes = files(out)
            assert finished.items() <= hashes.items(), "what was finished has changed"
            finished = hashes
            if ended.returncode == 0:
                break
            killed += 1
        wait_until(lambda folder=out: not relatives(folder))  # orphans end by themselves  # type: ignore[misc]
        assert not swept(out, runs).failed
        assert records(out) == straight and list((out / "attempts").iterdir()) == []


@pytest.mark.faults
@pytest.mark.usefixtures("toy")
def test_twenty_killed_sweeps(tmp_path: Path) -> None:
    kill_sweeps(tmp_path, "toys", toys(), kills=20, apart=200)


@pytest.mark.faults
def test_eight_killed_sweeps_of_real_ppo(tmp_path: Path) -> None:
    kill_sweeps(tmp_path, "hoppers", hoppers(), kills=8, apart=80)


@pytest.mark.usefixtures("toy")
def test_a_worker_that_was_paused_is_no_second_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sweep is gone, another has begun; whichever publishes, there is one run, with the bits of any."""
    (run,) = toys(1)
    swept(tmp_path / "straight", (run,))
    out = tmp_path / "out"
    Store(out).open_for_writing()
    pool = LocalPool(1)
    pool.open([], out)
    with monkeypatch.context() as patch:
        patch.setattr(local, "_in_child", kill_points.pausing_child)
        pool.start(Job(run.run_id, run.label, run.spec.to_dict(), str(out), plugins=str(TOY), checkpoint_seconds=0.0))
    worker = pool._workers[run.run_id].process
    status = Path(f"/proc/{worker.pid}/stat")
    wait_until(lambda: status.read_text().rpartition(")")[2].split()[0] == "T")

    def revive() -> None:
        wait_until(lambda: len(relatives(out)) == 2)  # the next worker is there, and waits
        os.kill(worker.pid, signal.SIGCONT)

    reviving = threading.Thread(target=revive)
    reviving.start()
    outcome = swept(out, (run,))
    reviving.join()
    worker.join(600)
    pool.close()
    assert outcome.done == [run.run_id] and records(out) == records(tmp_path / "straight")
    assert list((out / "attempts").iterdir()) == [] and QUICKLY.stall > 60


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_sweep_whose_folder_is_moved_ends_in_one_line(tmp_path: Path, is_made_anew: bool) -> None:
    out = tmp_path / "out"

    def move_away() -> None:
        out.rename(tmp_path / "moved")
        if is_made_anew:
            Store(out).open_for_writing()
            (out / ".lock").touch()

    said = "another sweep has taken over OUT=" if is_made_anew else "was moved or removed while the sweep ran; its runs"
    before = {"staleharness.json", "runs", "attempts", ".lock"} if is_made_anew else set()
    with pytest.raises(UserError, match=said):
        sweep_here(out, 1, AtPhase(move_away), env="toy", k="4", algo="spo", seeds="2")
    assert {path.name for path in out.rglob("*")} == before
