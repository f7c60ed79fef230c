"""Runs at a time, and what each may take: JOBS, RUNS_PER_GPU and MEMORY as typed."""

from __future__ import annotations

import re

from ..base.parsing import whole_number
from ..errors import UserError, shorten
from ..spec import RunSpec
from .runner import Demand

MOST_JOBS = 1024
MOST_PER_GPU = 64
UNITS = {"": 1, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9}
LEAST_MEMORY = 10**7  # bytes: below that, a unit was forgotten


def demand(
    spec: RunSpec, jobs: str | None = None, runs_per_gpu: str | None = None, memory: str | None = None
) -> Demand:
    """What runs like `spec` ask of their machine. Raises `UserError`."""
    shared = None if runs_per_gpu is None else _between("RUNS_PER_GPU", runs_per_gpu, MOST_PER_GPU)
    if shared is not None and spec.device == "cpu":
        raise UserError(f"RUNS_PER_GPU={shared} is for runs on a GPU; give DEVICE=cuda with it")
    return Demand(
        jobs=None if jobs is None else _between("JOBS", jobs, MOST_JOBS),
        threads=spec.threads,
        device=spec.device,
        runs_per_gpu=shared,
        memory=None if memory is None else _bytes(memory),
    )


def _between(name: str, text: str, most: int) -> int:
    number = whole_number(text, name)
    if number < 1:
        raise UserError(f"{name}={number} must be at least 1")
    if number > most:
        raise UserError(f"{name}={number} is too many; give at most {most}")
    return number


def _bytes(text: str) -> int:
    found = re.fullmatch(r"\s*(\d{1,12}(?:\.\d{1,6})?)\s*([A-Za-z]{0,2})\s*", text)
    if found is None or found[2].upper() not in UNITS:
        raise UserError(
            f"MEMORY={shorten(text)!r} is not an amount of memory; give what one run may take, e.g. 2G or 800M"
        )
    size = int(float(found[1]) * UNITS[found[2].upper()])
    if size < LEAST_MEMORY:
        raise UserError(
            f"MEMORY={shorten(text)} is {size} bytes, too little for a run; give it with a unit, e.g. 2G or 800M"
        )
    return size
