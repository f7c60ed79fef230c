"""Start-up time of the command: processor seconds of each verb that only reads, and a sweep's first lines.

    python benchmarks/start.py [--quick]

Each verb is a process of its own, in turns, so that a busy machine slows all of them down alike. Processor seconds are
those of the process and of what it started; the least of them is what the verb costs, and the spread is what others
did to it. `python` is the interpreter alone, which every other line contains. A sweep is timed by the clock, from the
command to each of its lines, for most of that time passes in its workers: it is what a person waits.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench_table import HEAD, show

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "helpers")]

PYTHON = sys.executable
COMMAND = [PYTHON, "-m", "staleharness"]
SWEEP = ["sweep", "--env", "Hopper", "--k", "8", "--algo", "ppo_clip", "--seeds", "1", "--steps", "4096"]
VERBS = {  # name -> (words, limit in processor seconds)
    "python": ([PYTHON, "-c", ""], None),
    "import staleharness": ([PYTHON, "-c", "import staleharness"], 0.1),
    "--help": ([*COMMAND, "--help"], 0.3),
    "sweep --help": ([*COMMAND, "sweep", "--help"], 0.3),
    "list": ([*COMMAND, "list"], 0.5),
    "status, 50 runs": ([*COMMAND, "status", "--out", "{folder}"], 0.3),
    "status, a bundle": ([*COMMAND, "status", "--out", "results/reference/vaco_control"], None),
    "a study of 200,000 capacities, refused": ([*COMMAND, "sweep", "--spec", "{grid}", "--dry"], 2.0),
}
CODES = {"a study of 200,000 capacities, refused": 2}  # exit codes other than 0
GRID = f'env = "Hopper"\nalgorithm = "ppo_clip"\ncapacity = {[*range(1, 200_001)]}\n'
LINES = {"the plan": "runs to do", "the first run": "start ", "it is done": "done "}  # of a sweep: what is in them
PATIENCE = 3.0  # seconds until a sweep says something


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "STALEHARNESS_PLUGINS": ""}


def processor_seconds(words: Sequence[str], code: int = 0) -> tuple[float, float]:
    """(processor seconds, wall seconds) of a process that must end with a code."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(words, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == code, done.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def at_most(bound: float | None) -> str:
    """Limit of a row; empty for None."""
    return "" if bound is None else f"<= {bound:g}"


def first_lines(folder: Path) -> dict[str, float]:
    """Seconds until each of `LINES` of a small sweep."""
    begin, found = time.perf_counter(), dict[str, float]()
    process = subprocess.Popen(
        [*COMMAND, *SWEEP, "--out", str(folder)],
        cwd=ROOT,
        env=environment(),
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    for said in process.stderr:
        for name, words in LINES.items():
            if words in said:
                found.setdefault(name, time.perf_counter() - begin)
    assert process.wait() == 0
    return found


def main() -> None:
    from results_helper import write_grid

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 turns instead of 7, and 1 sweep instead of 3")
    turns, sweeps = (2, 1) if parser.parse_args().quick else (7, 3)
    with tempfile.TemporaryDirectory() as made:
        folder, grid = Path(made) / "stored", Path(made) / "grid.toml"
        grid.write_text(GRID)
        write_grid(folder, ("ppo_clip", "vaco"), capacities=(1, 2, 4, 8, 16), seeds=5)
        seconds: dict[str, list[float]] = {name: [] for name in VERBS}
        for _ in range(turns):
            for name, (words, _) in VERBS.items():
                command = [word.format(folder=folder, grid=grid) for word in words]
                seconds[name].append(processor_seconds(command, code=CODES.get(name, 0))[0])
        print(f"processor seconds\n{HEAD}")
        for name, (_, limit) in VERBS.items():
            show(name, seconds[name], at_most(limit), "s", least=True)
        found = [first_lines(Path(made) / f"sweep{turn}") for turn in range(sweeps)]
        for name in LINES:
            limit = None if name == "it is done" else PATIENCE
            show(f"a sweep, wall time: {name}", [each[name] for each in found], at_most(limit), "s", least=True)


if __name__ == "__main__":
    main()
