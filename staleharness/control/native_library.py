"""native.cpp as a library: built by the machine's compiler when it is first needed, and kept in the cache."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import shutil
import subprocess
from ctypes import c_bool, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

from ..base.cache import build_once
from ..errors import UserError

SOURCE = Path(__file__).with_name("native.cpp")
COMPILERS = ("c++", "g++", "clang++")
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
AVX2 = "-march=x86-64-v3"
P = c_void_p
SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "networks_new": (P, (c_int, c_int, P, P)),
    "networks_free": (None, (P,)),
    "actors_read": (None, (P, P)),
    "actors_act": (None, (*(P,) * 9, c_int64, P)),
    "learner_forward": (None, (P, P, c_int, P, P, P, P, c_int, *(P,) * 5)),
    "learner_backward": (None, (P, P, c_int, P, P, P)),
    "gaussian_logp": (None, (P, P, P, P, c_bool, c_int, c_int, P)),
    "gaussian_backward": (None, (P, P, P, P, P, c_int, c_int, P, P)),
    "value_loss": (None, (P, P, P, c_int, c_float, c_float, P, P)),
    "adamw": (None, (P, P, P, P, P, c_int64, c_float, c_float, c_float, c_float, P)),
}


def compiler() -> tuple[str, ...]:
    """Return the command that builds the library: `$CXX`, or the first of `COMPILERS` on the path, with its flags.

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
    return (name, *FLAGS, *((AVX2,) if _has_avx2() else ()))


def _has_avx2() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return " avx2 " in flags and " fma " in flags


def compiler_version() -> str:
    """Return the first line of the compiler's `--version`. Raises `UserError` where there is no compiler."""
    command = [compiler()[0], "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.partition("\n")[0]


@functools.cache
def library() -> Any:
    """The functions of native.cpp, built on first use. Raises `UserError` where that fails."""
    command = compiler()
    parts = SOURCE.read_text(encoding="utf-8"), *command, compiler_version()
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]

    def build(folder: Path) -> None:
        folder.mkdir()
        done = subprocess.run(
            [*command, str(SOURCE), "-o", str(folder / "native.so")], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            lines = (done.stderr or done.stdout).strip().splitlines()
            raise UserError(
                f"learner=native: {command[0]} cannot build {SOURCE.name}: {lines[0] if lines else 'no message'}"
            )

    library = ctypes.CDLL(str(build_once("native", key, build) / "native.so"))
    for name, (result, arguments) in SIGNATURES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
