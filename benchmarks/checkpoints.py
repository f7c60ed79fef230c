"""Checkpoints that hold every version, as they do, against a file for each version, written once and referred to.

    python benchmarks/checkpoints.py

Simulated for runs of several sizes and two disks by the rule that a run follows (`checkpoint.next_due`: every 30 s, or
as much later as keeps writing at 5 % of the time). A kill loses half an interval of work on average. `share`: of the
time, at the interval of whole checkpoints, hence with the same work lost. On SIGTERM: the mean over all phases. On
disk: two checkpoints, and the third that is being written. Then checkpoints of 16 versions of 32 MB are really written.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from staleharness.training import checkpoint

# run: GB of weights and moments, GB of a version, K, seconds of a phase
RUNS = {
    "0.5B, K=16": (6.0, 2.0, 16, 12.5),  # measured on an H200 (docs/language.md), as the next
    "0.5B, K=2": (6.0, 2.0, 2, 7.0),
    "0.5B, K=16, N=16": (6.0, 2.0, 16, 112.0),
    "1.5B, K=4, N=4": (18.5, 6.2, 4, 100.0),
    "SmolLM2, K=8, a CPU": (1.6, 0.54, 8, 25.0),
    "SmolLM2 with LoRA, K=8, a CPU": (0.2, 0.03, 8, 25.0),
    "Hopper, K=16": (1e-4, 3e-5, 16, 0.3),
}
HOURS = 20.0
HEAD = ("seconds apart", "share [%]", "GB an hour", "s on SIGTERM", "GB on disk")


def simulate(run: tuple[float, float, int, float], disk: float, separate: bool, every: float = 30.0) -> list[float]:
    """Return what `HEAD` names for a run. disk: GB a second. separate: a version is a file of its own, written once."""
    state, version, capacity, phase = run
    now, due, phases, fresh = 0.0, every, 0, capacity
    stops, saves = [], []  # seconds; end [s], seconds, new versions
    while now < HOURS * 3600:
        now, phases, fresh = now + phase, phases + 1, min(capacity, fresh + 1) if separate else capacity
        stops.append(seconds := (state + version * fresh) / disk)
        if now >= due:
            due = checkpoint.next_due(now, now + seconds, every)
            now += seconds
            saves.append((now, seconds, fresh))
            fresh = 0
    writing = sum(seconds for _, seconds, _ in saves)
    apart = (saves[-1][0] - saves[len(saves) // 2][0]) / (len(saves) - 1 - len(saves) // 2)
    on_disk = 3 * state + version * (capacity + 2 * saves[-1][2])
    return [apart, 100 * writing / now, writing * disk / now * 3600, sum(stops) / phases, on_disk]


def write(folder: Path, separate: bool, fresh: int, numbers: int = 8_000_000) -> tuple[int, float, float]:
    """Write three checkpoints of 16 versions, `fresh` of them new each time; return bytes, seconds and processor
    seconds of the last."""
    for turn in range(3):
        versions = {phase: torch.full((numbers,), float(phase)) for phase in range(turn * fresh, turn * fresh + 16)}
        size, wall, processor = 0, time.perf_counter(), time.process_time()
        for phase in [phase for phase in versions if separate and not (folder / f"{phase}").exists()]:
            (folder / f"{phase}").mkdir()
            checkpoint.save(folder / f"{phase}", phase, {"tensors": versions[phase]})
            size += checkpoint.size(folder / f"{phase}")
        content: dict[str, Any] = {"learner": torch.zeros(numbers), "buffer": list(versions) if separate else versions}
        checkpoint.save(folder, turn, content)
        last = size + checkpoint.size(folder), time.perf_counter() - wall, time.process_time() - processor
    return last


def main() -> None:
    print(f"{'run, disk: whole, a file each':<42}" + "".join(f"{name:>20}" for name in HEAD))
    for name, run in RUNS.items():
        for disk in (0.5, 2.0):
            whole, files = simulate(run, disk, False), simulate(run, disk, True)
            files[1:3] = simulate(run, disk, True, whole[0])[1:3]  # at the same interval
            cells = [f"{a:,.3g}, {b:,.3g}" for a, b in zip(whole, files, strict=True)]
            print(f"{name}, {disk:g} GB/s".ljust(42) + "".join(f"{cell:>20}" for cell in cells))
    for fresh in (16, 4):
        for separate in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                size, wall, processor = write(Path(folder), separate, fresh)
            kind = "a file each" if separate else "whole"
            print(f"{fresh} of 16 new, {kind}: {size / 1e6:,.0f} MB, {wall:.1f} s, {processor:.2f} s of the processor")


if __name__ == "__main__":
    main()
