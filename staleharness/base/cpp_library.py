"""C++ sources as a library: built by the machine's compiler when it is first needed, and kept in the cache."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from .artifact_cache import build_once

COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
AVX2 = "-march=x86-64-v3"


def compiler() -> tuple[str, ...]:
    """Return the command that builds a library: `$CXX`, or the first of `COMPILERS` on the path, with its flags.

    Raises `UserError` where there is none.
    """
    compiler = os.environ.get("CXX")
    name = compiler or next(filter(shutil.which, COMPILERS), None)
    if name is None or not shutil.which(name):
        problem = f"CXX={compiler} is not on the path" if compiler else f"none of {', '.join(COMPILERS)} is on the path"
        raise UserError(
            f"learner=native needs a C++ compiler, and {problem}; install one (apt install g++), name it in CXX, or "
            "use learner=torch"
        )
    cpu = Path("/proc/cpuinfo")
    abilities = cpu.read_text(encoding="utf-8") if cpu.is_file() else ""
    return (name, *FLAGS, *((AVX2,) if " avx2 " in abilities and " fma " in abilities else ()))


def compiler_version() -> str:
    """Return the first line of the compiler's `--version`. Raises `UserError` where there is no compiler."""
    command = [compiler()[0], "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.partition("\n")[0]


def build_library(
    sources: Sequence[Path],
    signatures: Mapping[str, tuple[Any, tuple[Any, ...]]],
    headers: Sequence[Path] = (),
    flags: Sequence[str] = (),
) -> Any:
    """Return the library of these sources, built unless it is in the cache.

    signatures: (result, arguments) by function. headers: files that the sources include. flags: of the compiler,
    beside `FLAGS`. Raises `UserError` where the build fails.
    """
    command = (*compiler(), *flags)
    parts = *(file.read_text(encoding="utf-8") for file in (*sources, *headers)), *command, compiler_version()
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def build(folder: Path) -> None:
        folder.mkdir()
        done = subprocess.run(
            [*command, *map(str, sources), "-o", str(folder / "native.so")], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            names = ", ".join(file.name for file in sources)
            raise UserError(f"learner=native: {command[0]} cannot build {names}: {lines[0] if lines else 'no message'}")

    library = ctypes.CDLL(str(build_once("native", key, build) / "native.so"))
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
