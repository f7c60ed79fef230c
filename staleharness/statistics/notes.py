"""What a reader of the table must know: missing runs, thin cells, runs that were not made alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.text import plural
from ..store.run_grid import Cell, RunGrid
from ..store.stored_run import StoredRun

AXES = ("algorithm", "capacity", "env", "hyper", "seed")  # of a sweep; other settings should be equal
Missing = tuple[Cell, int, str | None]  # cell, seed, problem


def missing_runs(found: RunGrid, expected: Sequence[Mapping[str, Any]]) -> list[Missing]:
    """(cell, seed, problem) of every run that was asked for and is not there, sorted."""
    there = {(c, r.seed) for c, rs in found.cells.items() for r in rs}
    asked = {(Cell(e["label"], e["capacity"], e["env"]), int(e["seed"])): e.get("problem") for e in expected}
    absent = [(cell, seed, problem) for (cell, seed), problem in asked.items() if (cell, seed) not in there]
    return sorted(absent, key=lambda m: (m[0].capacity, m[0].label, m[0].env, m[1]))


def on_missing(missing: list[Missing], asked: int, envs: list[str], ks: list[int]) -> list[str]:
    if not missing:
        return []
    names = []
    for cell, seed, problem in missing[:12]:
        place = (f" {cell.env}" if len(envs) > 1 else "") + (f" K={cell.capacity}" if len(ks) > 1 else "")
        names.append(f"{cell.label}{place} seed {seed} ({problem or 'not run'})")
    more = f" and {len(missing) - 12} more" if len(missing) > 12 else ""
    notes = [f"{len(missing)} of {plural(asked, 'run')} missing: {', '.join(names)}{more}"]
    if lost := sum(problem == "Diverged" for _, _, problem in missing):
        what = f"{plural(lost, 'run')} diverged and {'counts' if lost == 1 else 'count'} nowhere"
        notes.append(f"{what}: the scores of such a row are those of the other runs")
    return notes


def on_counts(found: RunGrid, envs: list[str]) -> list[str]:
    """Where rows rest on unequal, few or single runs."""
    notes = []
    single, small = [], []
    for label, k in found.rows:
        sizes = {env: len(rs) for env, rs in found.tasks(label, k).items()}
        name = f"{label} K={k}"
        if absent := [e for e in envs if e not in sizes]:
            notes.append(f"{name} has no run on {', '.join(absent)}: aggregated over {len(sizes)} of {len(envs)} envs")
        if len(set(sizes.values())) > 1:
            each = ", ".join(f"{e} {n}" for e, n in sizes.items())
            notes.append(
                f"{name} has unequal numbers of runs ({each}): all are used, n is the smallest; in IQM and AUC an "
                "environment counts by its runs"
            )
        if min(sizes.values()) == 1:
            single.append(name)
        elif sum(sizes.values()) < 4:
            small.append(name)
    if single:
        notes.append(f"no interval where a task has one run only: {', '.join(single)}")
    if small:
        who = "every row" if len(small) == len(found.rows) else ", ".join(small)
        notes.append(f"fewer than 4 runs, so nothing is trimmed and the IQM is the mean; intervals are rough: {who}")
    return notes


def on_warnings(runs: Sequence[StoredRun]) -> list[str]:
    """What runs said of themselves, each thing once: who (and at which K, where not at all), then what."""
    said: dict[str, set[tuple[str, int]]] = {}
    for run in runs:
        label, k = run.label, int(run.record["spec"]["capacity"])
        for line in run.record.get("warnings", ()):
            what = str(line).removeprefix(f"{run.record['spec']['algorithm']}: ")
            said.setdefault(what, set()).add((label, k))
    ks = {int(run.record["spec"]["capacity"]) for run in runs}
    notes = []
    for what, cells in sorted(said.items()):
        where = {k for _, k in cells}
        place = f" (K = {', '.join(map(str, sorted(where)))})" if where != ks else ""
        notes.append(f"{', '.join(sorted({label for label, _ in cells}))}{place}: {what}")
    return notes


def on_mixtures(runs: Sequence[StoredRun]) -> list[str]:
    """Warnings where runs were made by different code, versions or hardware, or with different settings."""
    notes = []
    for what, key, skip in (("made with", "fingerprint", ()), ("set to", "spec", AXES)):
        names = sorted({n for r in runs for n in r.record[key]} - set(skip))
        if all(" N=" in r.label for r in runs):  # forward lag is an axis then, and in every label
            names = sorted(set(names) - {dict(r.record["task"]["axes"]).get("N") for r in runs})
        for name in names:
            counts = Counter(str(r.record[key].get(name)) for r in runs)
            if len(counts) > 1:
                shares = ", ".join(f"{v} ({plural(n, 'run')})" for v, n in sorted(counts.items()))
                notes.append(f"runs are {what} different {name}: {shares}")
    return notes
