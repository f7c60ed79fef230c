"""Facts about the machine and the code that runs on it."""

from __future__ import annotations

import multiprocessing
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from places import ROOT
from raising import raising

from staleharness.base import system_info
from staleharness.base.system_info import OVERRIDES, commit, cpu_quotas, memory_limits, overrides, resident_memory
from staleharness.running import runner_interface
from staleharness.running.runner_interface import usable_cores


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="not in a git checkout")
def test_the_commit_is_that_of_the_checkout() -> None:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    revision, _, difference = str(commit()).partition("+")
    assert revision == head and len(difference) in (0, 12)


def test_two_differences_from_a_commit_have_two_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    (tmp_path / "staleharness" / "base").mkdir(parents=True)
    (tmp_path / "file").write_text("one")
    git("init")
    assert commit(tmp_path) is None  # nothing is committed
    git("add", "file")
    git("commit", "-m", "first")
    commits = [commit(tmp_path)]
    for text in ("two", "three", "two", "one"):
        (tmp_path / "file").write_text(text)
        commits.append(commit(tmp_path))
    clean, two, three, again, back = commits
    assert clean == back and two == again and len({clean, two, three}) == 3
    assert str(two).startswith(f"{clean}+")


def test_instruction_set_overrides_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OVERRIDES:
        monkeypatch.delenv(name, raising=False)
    assert overrides() == {}
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("MKL_CBWR", "")
    assert overrides() == {"ATEN_CPU_CAPABILITY": "default"}


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="only /proc says what memory is resident")
def test_resident_memory_is_that_of_this_process_and_its_children() -> None:
    alone = resident_memory()
    held = np.ones(100_000_000, np.uint8)
    more = resident_memory()
    assert alone is not None and more is not None and more - alone > 0.9 * held.nbytes
    child = multiprocessing.get_context("fork").Process(target=signal.pause)
    child.start()
    both = resident_memory()
    child.kill()
    child.join()
    after = resident_memory()
    assert both is not None and after is not None and both > 1.2 * after


def test_resident_memory_is_none_where_it_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system_info, "_resident", raising(FileNotFoundError))
    assert resident_memory() is None


@pytest.mark.parametrize(
    ("groups", "limits"),
    [
        ("0::/job_17/step_0\n", {"memory.max": "max", "job_17/memory.max": "8000", "job_17/step_0/memory.max": "9000"}),
        ("0::/\n", {"memory.max": "8000"}),  # within a container
        ("4:memory:/job_17\n3:cpu,cpuacct:/other\n0::/\n", {"memory/job_17/memory.limit_in_bytes": "8000"}),
        ("4:memory:/docker/1f\n", {"memory/memory.limit_in_bytes": "8000"}),
    ],
    ids=["a job of Slurm", "a container", "version 1", "a container, version 1"],
)
def test_memory_limits_are_those_of_all_groups_around(tmp_path: Path, groups: str, limits: dict[str, str]) -> None:
    (tmp_path / "cgroup").write_text(groups)
    for name, text in limits.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert min(memory_limits(tmp_path / "cgroup", tmp_path)) == 8000


QUOTA, PERIOD = "cpu.cfs_quota_us", "cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("groups", "limits"),
    [
        ("0::/job_17/step_0\n", {"job_17/cpu.max": "250000 100000", "job_17/step_0/cpu.max": "max 100000"}),
        ("0::/\n", {"cpu.max": "125000 50000"}),
        (
            "4:cpu,cpuacct:/job_17/step_0\n3:memory:/other\n0::/\n",
            {
                f"cpu/{QUOTA}": "-1",
                f"cpu/{PERIOD}": "100000",
                f"cpu/job_17/{QUOTA}": "250000",
                f"cpu/job_17/{PERIOD}": "100000",
                f"cpu/job_17/step_0/{QUOTA}": "400000",
                f"cpu/job_17/step_0/{PERIOD}": "100000",
                f"cpu/other/{QUOTA}": "100000",
                f"cpu/other/{PERIOD}": "100000",
            },
        ),
        ("4:cpuacct,cpu:/docker/1f\n", {f"cpu/{QUOTA}": "250000", f"cpu/{PERIOD}": "100000"}),
    ],
    ids=["a job of Slurm", "a container", "version 1", "a container, version 1"],
)
def test_quotas_of_cores_are_those_of_all_groups_around(tmp_path: Path, groups: str, limits: dict[str, str]) -> None:
    (tmp_path / "cgroup").write_text(groups)
    for name, text in limits.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert min(cpu_quotas(tmp_path / "cgroup", tmp_path)) == 2.5


def test_without_control_groups_nothing_is_limited(tmp_path: Path) -> None:
    assert memory_limits(tmp_path / "cgroup", tmp_path) == [] == cpu_quotas(tmp_path / "cgroup", tmp_path)


@pytest.mark.parametrize(("quotas", "cores"), [([], 8), ([16.0], 8), ([9.0, 2.5, 4.0], 2), ([0.5], 1)])
def test_usable_cores_are_whole_ones_of_the_least_quota(
    monkeypatch: pytest.MonkeyPatch, quotas: list[float], cores: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(runner_interface, "cpu_quotas", lambda: quotas, raising=False)
    assert usable_cores() == cores


FAULTS = """
import resource, sys
import numpy as np
from staleharness.base.system_info import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
for turn in range(9):
    if turn == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(8_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc's allocator")
def test_large_blocks_are_cleared_by_the_system_once() -> None:
    """64 MB are 15,625 pages of 4 kB, or 31 of 2 MB; eight times they are new unless freed memory is kept."""
    faults = [
        int(subprocess.run([sys.executable, "-c", FAULTS, word], capture_output=True, check=True, text=True).stdout)
        for word in ("return", "keep")
    ]
    assert faults[0] >= 8 * 31
    assert faults[1] < 31
