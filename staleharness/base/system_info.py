"""Facts about the machine: libraries, commit, processor, memory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib.metadata
import multiprocessing.process
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LIBRARIES = ("torch", "numpy", "gymnasium", "mujoco", "pandas", "pyarrow")
HOME = Path(__file__).resolve().parents[2]
# Variables that make libraries choose instructions other than the processor's best, which changes bits.
OVERRIDES = (
    "ATEN_CPU_CAPABILITY DNNL_MAX_CPU_ISA GLIBC_TUNABLES MKL_CBWR MKL_DEBUG_CPU_TYPE MKL_ENABLE_INSTRUCTIONS "
    "NPY_DISABLE_CPU_FEATURES NPY_ENABLE_CPU_FEATURES ONEDNN_MAX_CPU_ISA OPENBLAS_CORETYPE OPENBLAS_L2_SIZE"
).split()


def overrides() -> dict[str, str]:
    """Instruction-set overrides in the environment of this process, by variable; usually none."""
    return {name: os.environ[name] for name in OVERRIDES if os.environ.get(name)}


def package_version(name: str) -> str | None:
    """Version of an installed package, or None. A folder of its name that can be imported does not count."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit(folder: Path = HOME) -> str | None:
    """Commit of the checkout, with `+` and a digest of uncommitted changes; None outside a checkout."""
    if not (folder / ".git").exists():
        return None
    try:
        head = _git(folder, "rev-parse", "--short=12", "HEAD").decode().strip()
        difference = _git(folder, "diff", "--no-ext-diff", "--no-color", "--binary", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{head}+{hashlib.sha256(difference).hexdigest()[:12]}" if difference else head


def cpu_model() -> str:
    """Model name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or "unknown")


@functools.cache
def memory() -> int:
    """Bytes of main memory of this machine, or of the control groups of this process if less."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *memory_limits()])


GROUPS, MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")  # see `_group_folders`


def memory_limits(groups: Path = GROUPS, mount: Path = MOUNT) -> list[int]:
    """Limits on the memory of a process's control groups and of the groups around them [bytes]."""
    limits: list[int] = []
    for folder in _group_folders("memory", groups, mount):
        for name in ("memory.max", "memory.limit_in_bytes"):  # of versions 2 and 1
            with contextlib.suppress(OSError, ValueError):  # there is no such group here, or it has no limit
                limits.append(int((folder / name).read_text(encoding="utf-8")))
    return limits


def cpu_quotas(groups: Path = GROUPS, mount: Path = MOUNT) -> list[float]:
    """Quotas of processor time of a process's control groups and of the groups around them [cores]."""
    quotas: list[float] = []
    for folder in _group_folders("cpu", groups, mount):
        for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):  # of versions 2 and 1
            with contextlib.suppress(OSError, ValueError):  # there is no such group here, or its quota is `max`
                words = " ".join((folder / name).read_text(encoding="utf-8") for name in names).split()
                quota, period = map(int, words)
                quotas += [quota / period] if quota > 0 else []  # version 1 writes no quota as -1
    return quotas


def _group_folders(controller: str, groups: Path, mount: Path) -> Iterator[Path]:
    """Folders of a process's control groups with a controller, and of the groups around them.

    groups: lists the groups, one `number:controllers:path` a line; version 2 of control groups names no controller.
    mount: folder below which the kernel shows them; a container may see its own group there without its path.
    """
    for line in groups.read_text(encoding="utf-8").splitlines() if groups.is_file() else ():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        folder, parts = mount / controller if controllers else mount, Path(path).parts[1:]
        yield from (folder.joinpath(*parts[:depth]) for depth in range(len(parts) + 1))


def memory_kills() -> int:
    """Number of out-of-memory kills by the kernel since boot; 0 where it is not reported."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text(encoding="utf-8").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def peak_memory() -> int:
    """Peak bytes of main memory of this process."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def resident_memory() -> int | None:
    """Bytes of main memory of this process and its children now, shared pages counted for each; None where it is not
    reported."""
    try:
        total = _resident("self")
    except OSError:
        return None
    # not active_children(), which reaps exit codes that another thread may be waiting for
    for child in list(getattr(multiprocessing.process, "_children", ())):
        with contextlib.suppress(OSError, ValueError):  # the process has ended meanwhile
            total += _resident(str(child.pid))
    return total


def _resident(process: str) -> int:
    pages = Path(f"/proc/{process}/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _git(folder: Path, *arguments: str) -> bytes:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, timeout=10, check=True)
    return done.stdout


M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt


def keep_freed_memory() -> None:
    """Let glibc's allocator keep freed blocks of up to 1 GB for reuse; other libraries are left alone.

    By default it returns blocks of 32 MB and more to the system, which then clears new pages for every large tensor: a
    quarter of the processor time of a phase of `word-problems`.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018 (other libraries may have a mallopt of their own)
        libc.mallopt(M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
