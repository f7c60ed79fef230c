"""Cost of reading results: reports of many runs, and the gallery of a paper, in processor seconds and memory.

    python benchmarks/reading.py [--quick] [--runs 1000 10000] [--phases 100]

The runs are synthetic and lie in a folder as a sweep leaves them: 8 algorithms, 5 environments, 5 capacities, and as
many seeds as it takes, of 100 phases with 30 columns each (published runs have 24 to 146 phases). Every report is made
from scratch: table, figures as SVG, PNG and PDF, lists as CSV, one HTML page, whose size is printed since it is what a
reader opens. A report that is asked for again is left as it is.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from bench_table import HEAD, show
from start import COMMAND, at_most, processor_seconds
from sweeps import MAX_MEMORY, command, copy_run

LABELS = ("a3po", "decoupled_ppo", "impala", "ppo_clip", "ppo_kl", "spo", "vaco", "vaco[delta=0.1]")
ENVS = ("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5")
CAPACITIES = (1, 2, 4, 8, 16)
CELLS = len(LABELS) * len(ENVS) * len(CAPACITIES)
LIMITS = {1000: 20.0, 10_000: 60.0}  # runs -> processor seconds of a report
GALLERY = 40.0


def make(folder: Path, runs: int, phases: int) -> int:
    """Write about so many runs; returns how many. Seeds beyond the first two repeat their phases with other scores."""
    from results_helper import write_grid

    written = write_grid(folder, LABELS, envs=ENVS, capacities=CAPACITIES, seeds=min(2, runs // CELLS), phases=phases)
    seeds = runs // CELLS
    for seed in range(2, seeds):
        for run in written[seed % 2 :: 2]:
            run_id, spec = f"{run.id[:8]}{seed:04x}", {**run.record["spec"], "seed": seed}
            copy_run(run.path, run.path.with_name(run_id), run.record["label"], spec)
    return CELLS * seeds


def report(folder: Path, turns: int) -> tuple[list[float], float, list[float]]:
    """Processor seconds and peak MB of reports made from nothing, and seconds of one that is there already."""
    fresh, peaks = [], []
    for _ in range(turns):
        shutil.rmtree(folder / "reports", ignore_errors=True)
        seconds, megabytes, _ = command("report", "--out", str(folder))
        fresh.append(seconds)
        peaks.append(megabytes)
    return fresh, max(peaks), [command("report", "--out", str(folder))[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one report of 1,000 runs and one gallery")
    parser.add_argument("--runs", type=int, nargs="*", default=list(LIMITS))
    parser.add_argument("--phases", type=int, default=100)
    arguments = parser.parse_args()
    print(f"processor seconds\n{HEAD}", flush=True)
    with tempfile.TemporaryDirectory() as made:
        for wanted in arguments.runs[:1] if arguments.quick else arguments.runs:
            folder = Path(made) / str(wanted)
            count = make(folder, wanted, arguments.phases)
            fresh, peak, again = report(folder, 1 if arguments.quick or wanted > 2000 else 3)
            show(f"report, {count:,} runs", fresh, at_most(LIMITS.get(wanted)), "s", least=True)
            show(f"report, {count:,} runs: peak memory", [peak], at_most(MAX_MEMORY), "MB")
            show(f"report, {count:,} runs, again", again, "", "s", least=True)
            (page,) = folder.glob("reports/*/index.html")
            pictures = sum(len(list(page.parent.glob(kind))) for kind in ("*.png", "*.pdf"))
            drawn = page.read_text(encoding="utf-8").count("<svg")
            size = page.stat().st_size / 1e6
            print(f"  a page of {size:.1f} MB with {drawn} pictures in it, {pictures} beside it", flush=True)
            shutil.rmtree(folder)
        words = [*COMMAND, "figures", "--paper", "vaco", "--out", str(Path(made) / "gallery")]
        seconds = [processor_seconds(words)[0] for _ in range(1 if arguments.quick else 3)]
        show("figures of VACO", seconds, at_most(GALLERY), "s", least=True)


if __name__ == "__main__":
    main()
