"""Shared parts of benchmarks against other libraries: environments for these, blocks in fresh processes, ratios."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class InstallError(Exception):
    """pip could not install a peer; the message is one line."""


ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "constraints")]


def environment(library: str, version: str, *beside: str) -> Path:
    """The Python of an environment of the library's own, with `beside`, under the cache folder; made at the first call
    (minutes) with the user's pip settings and the pins of constraints/. Raises `InstallError` where pip fails."""
    from install import torch_arguments

    from staleharness.base.artifact_cache import cache_folder

    major, minor = sys.version_info[:2]
    folder = cache_folder() / "benchmarks" / f"{library}-{version}-py{major}{minor}"
    python, log, done = folder / "bin" / "python", folder / "setup.log", folder / "done"
    if done.is_file():
        return python
    print(f"installing {library} {version} into {folder} (some minutes)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pins = ROOT / "constraints" / f"py{major}{minor}.txt"
    pip = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    torch = torch_arguments(python, pins, "cpu") or ["torch"]
    with log.open("w") as out:
        for arguments in (["--no-deps", *torch], ["-c", str(pins), f"{library}=={version}", *beside]):
            if subprocess.run([*pip, *arguments], stdout=out, stderr=subprocess.STDOUT).returncode:
                raise InstallError(f"pip could not install {library}=={version}; its output: {log}")
    done.touch()
    return python


def block(python: str | Path, script: str, words: Sequence[str], **variables: str) -> dict[str, Any]:
    """Return the last line that a fresh process prints, from JSON. It has one thread unless the script asks torch for
    more; where it fails, the program ends."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    done = subprocess.run(
        [str(python), script, *words], capture_output=True, text=True, env={**os.environ, **one, **variables}
    )
    if done.returncode:
        sys.exit(f"the block {' '.join(words)} failed:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median, smallest and largest."""
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"
