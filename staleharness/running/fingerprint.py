"""What a run was made with: versions, machine, threads, code. Bits are promised only within one fingerprint."""

from __future__ import annotations

import platform
from typing import Any

from ..base.machine import LIBRARIES, commit, cpu_model, overrides, package_version
from ..base.version import __version__
from ..spec import MATHS_VERSION, RunSpec


def fingerprint(spec: RunSpec) -> dict[str, Any]:
    """Versions, hardware, threads and commit as plain data."""
    return {
        "staleharness": __version__,
        "maths": MATHS_VERSION,
        "commit": commit(),
        "python": platform.python_version(),
        **{name: package_version(name) for name in LIBRARIES},
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "threads": spec.threads,
        "device": spec.device,
        **overrides(),
        **spec.toolchain(),
    }


def same_bits(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """What differs between two fingerprints that could change bits, as lines `name: a -> b`."""
    relevant = sorted((set(a) | set(b)) - {"commit", "pandas", "pyarrow"})
    return [f"{key}: {a.get(key)} -> {b.get(key)}" for key in relevant if a.get(key) != b.get(key)]
