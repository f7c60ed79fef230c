"""Cost of a sweep beside its runs, gain by a second worker, and cost of planning and reporting 10,000 runs.

    python benchmarks/sweeps.py [--quick] [--only overhead|workers|scale]

Overhead: the same runs by a sweep, one at a time, and bare: the training loop alone, in a process that is forked from
the same server, without files, progress messages or checkpoints. Loading the server is paid once a sweep and is a line
of its own.
Workers: the same sweep with one worker and with two. Both are by the clock, in turns, and want two idle cores: the
ratios of neighbouring turns are what counts.

Scale: a grid of 10,000 runs of which 9,990 are stored, written here; processor seconds and peak memory of commands.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench_table import HEAD, show
from start import COMMAND, ROOT, environment

if TYPE_CHECKING:
    from staleharness.running.plan import PlannedRun

MAX_OVERHEAD = 0.02
LEAST_SPEEDUP = 1.9
LIMITS = {"plan": 10.0, "go on": 10.0, "report": 60.0}  # processor seconds
MAX_MEMORY = 500.0  # MB
ALGO = "a3po,decoupled_ppo,impala,ppo_clip,ppo_kl,spo,vaco,vaco[delta=0.1]"
LEFT = 10  # runs that are not stored


def plan_runs(**asked: str) -> tuple[PlannedRun, ...]:
    from staleharness.running.plan import plan
    from staleharness.study import sweep_request

    return plan(sweep_request(**asked)).runs


def bare(spec: dict[str, Any]) -> None:
    """A run without all that a sweep puts around it."""
    from staleharness.task import find_env
    from staleharness.training.loop import simulation_of
    from staleharness.training.torch_setup import set_up_worker

    set_up_worker(int(spec["threads"]))
    _, family = find_env(str(spec["env"]))
    with contextlib.closing(simulation_of(family.settings.from_dict(spec), Path.cwd())) as simulation:
        for _ in simulation:
            pass


def bare_seconds(runs: tuple[PlannedRun, ...]) -> float:
    import sweeps  # under the name by which the forked process finds it

    begin = time.perf_counter()
    for run in runs:
        process = multiprocessing.get_context("forkserver").Process(target=sweeps.bare, args=(run.spec.to_dict(),))
        process.start()
        process.join()
        assert process.exitcode == 0
    return time.perf_counter() - begin


def sweep_seconds(runs: tuple[PlannedRun, ...], jobs: int) -> float:
    from sweeping import Silent

    from staleharness.running.runners.local import LocalPool
    from staleharness.running.sweep_event_loop import sweep
    from staleharness.store.store import Store

    with tempfile.TemporaryDirectory() as out:
        store = Store(Path(out) / "results")
        store.open_for_writing()
        begin = time.perf_counter()
        outcome = sweep(runs, store, LocalPool(jobs), Silent())
        seconds = time.perf_counter() - begin
    assert len(outcome.done) == len(runs), outcome
    return seconds


def overhead(runs: tuple[PlannedRun, ...], turns: int) -> None:
    first = sweep_seconds(runs[:1], 1)
    pairs = []
    for turn in range(turns):
        if turn % 2:
            swept = sweep_seconds(runs, 1)
            pairs.append((swept, bare_seconds(runs)))
        else:
            bare = bare_seconds(runs)
            pairs.append((sweep_seconds(runs, 1), bare))
    per_run = statistics.median(a for a, _ in pairs) / len(runs)
    print(f"the first run of a sweep takes {first - per_run:.1f} s more than the others, which take {per_run:.1f} s")
    ratios = [a / b for a, b in pairs]
    show("a sweep, wall time over its bare runs", ratios, f"<= {1 + MAX_OVERHEAD}")


def workers(runs: tuple[PlannedRun, ...], turns: int) -> None:
    sweep_seconds(runs[:1], 1)
    ratios = []
    for turn in range(turns):
        seconds = {jobs: sweep_seconds(runs, jobs) for jobs in ((1, 2) if turn % 2 else (2, 1))}
        ratios.append(seconds[1] / seconds[2])
    show("a sweep, two workers over one", ratios, f">= {LEAST_SPEEDUP}")


def store_runs(folder: Path, runs: tuple[PlannedRun, ...], phases: int) -> None:
    """Finished runs with the ids of a plan; those of a cell share their phases and have scores of their own."""
    from results_helper import write_run

    made: dict[tuple[str, int], Path] = {}
    with tempfile.TemporaryDirectory(dir=folder) as drafts:
        for run in runs:
            cell = run.label, run.spec.capacity
            if cell not in made:
                made[cell] = write_run(Path(drafts), run.label, capacity=run.spec.capacity, phases=phases).path
            copy_run(made[cell], folder / "results" / "runs" / run.run_id, run.label, run.spec.to_dict())


def copy_run(path: Path, copy: Path, label: str, spec: dict[str, Any]) -> None:
    """Copy a finished run as one of another id, the name of its folder: with its phases and scores of its own."""
    from staleharness.base.files import digest
    from staleharness.store.stored_run import RESULTS

    copy.mkdir()
    for name in ("metrics.parquet", "timing.parquet"):
        os.link(path / name, copy / name)
    own = {"label": label, "spec": spec}
    (copy / "job.json").write_text(json.dumps(json.loads((path / "job.json").read_text()) | own))
    record = json.loads((path / "run.json").read_text())
    scale = 1 + 0.01 * (spec["seed"] % 17)
    scores = {name: {**s, "mean": s["mean"] * scale} for name, s in record["scores"].items()}
    (copy / "run.json").write_text(json.dumps({**record, **own, "id": copy.name, "scores": scores}))
    (copy / "manifest.json").write_text(json.dumps({name: digest(copy / name) for name in RESULTS}))


def command(*words: str) -> tuple[float, float, str]:
    """(processor seconds, peak MB, what it printed) of a command that must end well."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen([*COMMAND, *words], cwd=ROOT, env=environment(), stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read()
    assert process.returncode == 0, text
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1000, text


def scale(count: int, phases: int, turns: int) -> None:
    from staleharness.store.store import Store

    seeds = str(count // 40)
    words = ["sweep", "--env", "Hopper", "--k", "1,2,4,8,16", "--algo", ALGO, "--seeds", seeds, "--dry"]
    runs = plan_runs(env="Hopper", k="1,2,4,8,16", algo=ALGO, seeds=seeds)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        Store(folder / "results").open_for_writing()
        store_runs(folder, runs[LEFT:], phases)
        out = ["--out", str(folder / "results")]
        commands = {
            "plan": [*words, "--out", str(folder / "nothing")],
            "go on": [*words, *out],
            "report": ["report", *out],
        }
        for name, arguments in commands.items():
            results = [command(*arguments) for _ in range(1 if name == "report" else turns)]
            seconds, memory = [result[0] for result in results], max(result[1] for result in results)
            if name == "go on":
                assert f"{LEFT} of {len(runs)} runs to do" in results[0][2], results[0][2]
            show(f"{name}, {len(runs):,} runs", seconds, f"<= {LIMITS[name]:g}", "s", least=True)
            show(f"{name}, {len(runs):,} runs: peak memory", [memory], f"<= {MAX_MEMORY:g}", "MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="short runs, two turns, 1,000 runs")
    parser.add_argument("--only", choices=("overhead", "workers", "scale"))
    arguments = parser.parse_args()
    steps, turns = ("10240", 2) if arguments.quick else ("92160", 5)
    runs = plan_runs(env="Hopper", k="8", algo="ppo_clip", seeds="4", steps=steps)
    if arguments.only in (None, "overhead", "workers"):
        from staleharness.base.process_launch import without_main_module

        print(f"wall time, ratios of turns\n{HEAD}", flush=True)
        with without_main_module():
            if arguments.only != "workers":
                overhead(runs[:2], turns)
            if arguments.only != "overhead":
                workers(runs, turns)
    if arguments.only in (None, "scale"):
        scale(1000 if arguments.quick else 10_000, 100, 1 if arguments.quick else 3)


if __name__ == "__main__":
    main()
