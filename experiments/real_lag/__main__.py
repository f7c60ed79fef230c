"""Is a simulated lag the real one? Runs whose actors are processes that race, each made again: under its own recorded
trace with the same seed and with a fresh one, under a pipeline model fitted to the trace, and under a uniform buffer of
equal mean lag; and without lag. Lags and final scores side by side, with intervals and tests.

    python experiments/real_lag                                       # 2 tasks x 3 methods x 5 seeds x 3 loads
    python experiments/real_lag --study real_lag_deep_queue             # 2 methods x 14 seeds behind a deep queue
    python experiments/real_lag --study tiny --out /tmp/tiny            # minutes: does it work?
    python experiments/real_lag --record                              # recordings alone; beside the others, if you like
    python experiments/real_lag --publish                             # what there is, as results/reference/real_lag

Nothing is made twice: the same command goes on where it was stopped. Recordings are made one at a time, for they race;
the others `--jobs` at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collect import table
from design import STUDIES, Cell, Study
from figure import draw_lags, draw_scores
from page import page

from staleharness.base.files import write_bytes
from staleharness.base.reference_results import reference_folder
from staleharness.figures.plot_layout import COLUMN, reduce_colours
from staleharness.pages.page_parts import picture_file
from staleharness.running.plan import Plan, PlannedRun
from staleharness.running.plan_execution import execute_plan
from staleharness.running.runners.local import LocalPool
from staleharness.store.bundle_writer import pack
from staleharness.store.store import Store
from staleharness.store.stored_run import StoredRun


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="real_lag", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--study", choices=STUDIES, default="real_lag")
    parser.add_argument("--out", type=Path, help="folder of the runs; by default results/<study>")
    parser.add_argument("--seeds", type=int, help="0 to this, less one; by default as many as the study has")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time, but for recordings")
    parser.add_argument("--record", action="store_true", help="make recordings, and nothing of them")
    parser.add_argument("--publish", action="store_true", help="make nothing: pack what there is and draw it")
    parser.add_argument("--to", type=Path, help="folder of the bundle; by default results/reference/<study>")
    parser.add_argument("--page", type=Path, help="folder of the page; by default docs/gallery/<study>")
    arguments = parser.parse_args()
    study = STUDIES[arguments.study]
    out = arguments.out or Path("results") / study.name
    seeds = study.seeds if arguments.seeds is None else arguments.seeds
    if seeds < 1:
        parser.error(f"--seeds {seeds}: give a whole number above 0")
    if arguments.publish:
        to = arguments.to or reference_folder() / study.name
        if (out / "recorded").is_dir():
            publish(study, out, to)
        show(study, to, seeds, arguments.page or Path("docs/gallery") / study.name)
        return
    for seed in range(seeds):
        some = study.cells(range(seed, seed + 1))
        recordings = run(out / "recorded", [cell.recording() for cell in some], jobs=1)
        if not arguments.record:
            run(out / "again", reruns(some, recordings), arguments.jobs)


def reruns(some: Sequence[Cell], recordings: Sequence[StoredRun]) -> list[PlannedRun]:
    """Plan the runs that repeat recordings, and those without lag."""
    planned = [run for cell in some for run in cell.on_policy()]
    for cell, real in zip(some, recordings, strict=True):
        planned += cell.reruns(real).values()
    return planned


def run(folder: Path, runs: Sequence[PlannedRun], jobs: int) -> list[StoredRun]:
    """Execute the runs that are missing. Returns all of them, in order."""
    once = tuple({each.run_id: each for each in runs}.values())
    plan = Plan(once, "real_lag", "")
    _, stored = execute_plan(plan, Store(folder), LocalPool(jobs), lambda done: contextlib.nullcontext(_Lines()))
    by_id = {each.id: each for each in stored}
    if missing := [each for each in once if each.run_id not in by_id]:
        sys.exit(f"{len(missing)} runs are missing, the first of {missing[0].text}; the same command goes on")
    return [by_id[each.run_id] for each in runs]


def publish(study: Study, out: Path, to: Path) -> None:
    """Pack both folders as one bundle."""
    together = Store(out / "together")
    together.open_for_writing()
    for folder in (out / "recorded", out / "again"):
        store = Store(folder)
        together.adopt(store, {run.id: run.label for run in store.read_all()})
    print(pack(str(together.root), str(to), None, study.command))


def show(study: Study, bundle: Path, seeds: int, folder: Path) -> None:
    """Write the page and its pictures from the runs in the bundle."""
    frame = table({run.id: run for run in Store(bundle).read_all()}, study.cells(range(seeds)))
    if frame.empty:
        sys.exit(f"{bundle} has no runs of {study.name}")
    folder.mkdir(parents=True, exist_ok=True)
    write_bytes(folder / "README.md", page(frame, study, seeds).encode())
    for name, draw in (("lags", draw_lags), ("scores", draw_scores)):
        write_bytes(folder / picture_file(name, "wide"), draw(frame))
        write_bytes(folder / picture_file(name, "narrow"), reduce_colours(draw(frame, COLUMN)))
    print(f"{len(frame)} runs in {folder / 'README.md'}")


class _Lines:
    """Listener that prints a line for each run that ends."""

    def on_start(self, run: PlannedRun) -> None: ...
    def on_preparing(self, run: PlannedRun, step: str) -> None: ...
    def on_phase(self, run: PlannedRun, progress: dict[str, Any]) -> None: ...
    def on_stop(self) -> None: ...

    def on_end(self, run: PlannedRun, event: dict[str, Any]) -> None:
        print(event["event"], run.text, run.spec.lag, event.get("message", ""), flush=True)


if __name__ == "__main__":
    main()
