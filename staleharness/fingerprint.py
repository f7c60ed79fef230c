"""What a run was made with: versions, machine, threads, code. Bits are promised only within one fingerprint."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

from . import __version__
from .spec import MATHS_VERSION, RunSpec

LIBRARIES = ("torch", "numpy", "gymnasium", "mujoco", "pandas", "pyarrow")


def fingerprint(spec: RunSpec) -> dict[str, Any]:
    """Versions, hardware, threads and commit as plain data."""
    return {
        "staleharness": __version__,
        "maths": MATHS_VERSION,
        "commit": commit(),
        "python": platform.python_version(),
        **{name: installed(name) for name in LIBRARIES},
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "threads": spec.threads,
        "device": spec.device,
    }


def same_bits(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """What differs between two fingerprints that could change bits, as lines `name: a -> b`."""
    relevant = sorted((set(a) | set(b)) - {"commit", "pandas", "pyarrow"})
    return [f"{key}: {a.get(key)} -> {b.get(key)}" for key in relevant if a.get(key) != b.get(key)]


def installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The checkout's commit, `+` when the tree differs from it; None outside a checkout."""
    folder = Path(__file__).resolve().parent.parent
    if not (folder / ".git").exists():
        return None
    try:
        head = _git(folder, "rev-parse", "--short=12", "HEAD")
        dirty = _git(folder, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+" if dirty else "")


def cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()
