"""The table: aggregate scores with intervals, per algorithm and buffer capacity. Reads stored runs, trains
nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__
from .bootstrap import AGGREGATES, LEVEL, aggregates, iqm, point_estimates, rliable_interval
from .files import digest, write_json
from .scores import (
    CONSTANTS,
    Array,
    Cell,
    Grid,
    Normaliser,
    cell_of,
    final_score,
    grid,
    learning_curve,
    normaliser,
)
from .store import StoredRun
from .tables import COLUMNS, Table, plain, plural, render, to_csv

__all__ = ["Table", "cached_table", "plain", "render", "table", "to_csv"]

FORMAT = 1  # of the cache; raise it when the same runs would give another table
AXES = ("algorithm", "capacity", "env", "hyper", "seed")  # of a sweep; other settings should be equal


def table(
    runs: Sequence[StoredRun],
    expected: Sequence[Mapping[str, Any]] = (),
    *,
    score: str = "sampled",
    normalise: str = "minmax",
    reps: int = 2000,
) -> Table:
    """Aggregate runs over environments and seeds: one row per (algorithm, capacity), sorted by capacity and
    name.

    `expected` lists the runs that were asked for, each {label, capacity, env, seed, problem (a word or
    None)}, so that what is missing can be said. `score` is `sampled` or `deterministic`; `normalise` is
    `minmax`, `ppo` or `frozen` (see `scores.normaliser`). Raises `UserError` for an unknown option, or a
    normalisation without runs. The result does not depend on the order of the runs.
    """
    found = grid(runs)
    scale = normaliser(normalise, found, score)
    missing = _missing(found, expected)
    keys = sorted({(k, label) for label, k in found.rows} | {(c.capacity, c.label) for c, _, _ in missing})
    envs = sorted({*found.envs, *(c.env for c, _, _ in missing)})
    rows = [
        _row(
            found,
            label,
            k,
            scale,
            score,
            reps,
            sum((c.label, c.capacity) == (label, k) for c, _, _ in missing),
        )
        for k, label in keys
    ]
    ks = sorted({k for k, _ in keys})
    settings = {
        "score": score,
        "normalise": normalise,
        "constants": {e: [scale.low[e], scale.high[e]] for e in sorted(scale.low)},
        "constants_note": scale.note,
        "reps": reps,
        "level": LEVEL,
        "envs": envs,
        "capacities": ks,
    }
    notes = [
        *_missing_notes(missing, len(runs) + len(missing), envs, ks),
        *_count_notes(found, envs),
        *(f"all runs on {e} have the same score: normalised to 0.5" for e in scale.degenerate),
        *_mixture_notes(runs),
    ]
    return Table(rows, notes, settings)


def cached_table(
    folder: Path, runs: Sequence[StoredRun], expected: Sequence[Mapping[str, Any]] = (), **options: Any
) -> Table:
    """`table(...)`, kept in `folder/table.json` and read back from there, without rliable or pandas, while
    the runs, what was expected and the options are the same.
    """
    path = folder / "table.json"
    key = _key(runs, expected, options)
    try:
        held = json.loads(path.read_text())
        if held["key"] == key:
            return Table(**held["table"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # absent or of another make: computed again below
    made = table(runs, expected, **options)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, {"key": key, "table": made.to_json()})
    return made


def _key(runs: Sequence[StoredRun], expected: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
    content = {
        "code": [FORMAT, __version__, digest(CONSTANTS)],
        "runs": sorted([r.id, digest(r.path / "manifest.json")] for r in runs),
        "expected": sorted(json.dumps(dict(e), sort_keys=True) for e in expected),
        "options": dict(options),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _row(
    found: Grid, label: str, k: int, scale: Normaliser, score: str, reps: int, missing: int
) -> dict[str, Any]:
    members = {c.env: rs for c, rs in found.cells.items() if (c.label, c.capacity) == (label, k)}
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"algorithm": label, "capacity": k, "n_runs": 0, "n_tasks": len(members), "missing": missing}
    row["env"] = next(iter(members)) if len(members) == 1 else f"{len(members)} envs"
    if not members:
        return row
    row["n_runs"] = min(len(rs) for rs in members.values())

    scores = [np.array([scale(env, final_score(r, score)) for r in rs]) for env, rs in members.items()]
    row |= dict(zip(AGGREGATES, point_estimates(scores).tolist(), strict=True))
    row |= _interval(AGGREGATES, aggregates, scores, (label, k), reps)
    areas = [np.array([area(r, scale, score) for r in rs]) for rs in members.values()]
    if np.isfinite(np.concatenate(areas)).all():
        row["auc"] = float(iqm(np.concatenate(areas)))
        row |= _interval(
            ("auc",), lambda *columns: iqm(np.concatenate(columns))[None], areas, (label, k), reps
        )

    runs = [r for rs in members.values() for r in rs]
    row["raw_mean"] = _mean([final_score(r, score) for r in runs])
    for name, source in (
        ("lag_mean", "lag_mean"),
        ("tv", "tv_data"),
        ("ess", "ess_data"),
        ("clipped", "clipped"),
    ):
        row[name] = _mean([r.record["summary"].get(source) for r in runs])
    row["seconds"] = _mean([r.record["seconds"]["total"] for r in runs])
    return row


def _interval(
    names: Sequence[str], statistic: Any, columns: Sequence[Array], cell: tuple[str, int], reps: int
) -> dict[str, float]:
    """{name_low, name_high} of each name; nothing where a task has one run only, for then there is no
    interval.
    """
    if min(len(c) for c in columns) < 2:
        return {}
    low, high = rliable_interval(statistic, columns, name=(names[0], *cell), reps=reps)
    ends: dict[str, float] = {}
    for i, name in enumerate(names):
        ends |= {f"{name}_low": float(low[i]), f"{name}_high": float(high[i])}
    return ends


def area(run: StoredRun, scale: Normaliser, score: str) -> float:
    """Mean height of a run's normalised learning curve (trapezoid rule); NaN with fewer than two evaluations.

    One number per run, before any resampling: a bootstrap over checkpoints would break each curve apart.
    """
    steps, returns = learning_curve(run, score)
    if len(steps) < 2:
        return float("nan")
    return float(np.trapezoid(scale(cell_of(run).env, returns), steps) / (steps[-1] - steps[0]))


def _mean(values: Sequence[float | None]) -> float | None:
    there = [v for v in values if v is not None]
    return float(np.mean(there)) if there else None


def _missing(found: Grid, expected: Sequence[Mapping[str, Any]]) -> list[tuple[Cell, int, str | None]]:
    """(cell, seed, problem) of every run that was asked for and is not there, sorted."""
    there = {(c, int(r.record["spec"]["seed"])) for c, rs in found.cells.items() for r in rs}
    asked = {(Cell(e["label"], e["capacity"], e["env"]), int(e["seed"])): e.get("problem") for e in expected}
    absent = [(cell, seed, problem) for (cell, seed), problem in asked.items() if (cell, seed) not in there]
    return sorted(absent, key=lambda m: (m[0].capacity, m[0].label, m[0].env, m[1]))


def _missing_notes(
    missing: list[tuple[Cell, int, str | None]], asked: int, envs: list[str], ks: list[int]
) -> list[str]:
    if not missing:
        return []
    names = []
    for cell, seed, problem in missing[:12]:
        place = (f" {cell.env}" if len(envs) > 1 else "") + (f" K={cell.capacity}" if len(ks) > 1 else "")
        names.append(f"{cell.label}{place} seed {seed} ({problem or 'not run'})")
    more = f" and {len(missing) - 12} more" if len(missing) > 12 else ""
    return [f"{len(missing)} of {plural(asked, 'run')} missing: {', '.join(names)}{more}"]


def _count_notes(found: Grid, envs: list[str]) -> list[str]:
    """Where rows rest on unequal, few or single runs."""
    notes = []
    single, small = [], []
    for label, k in found.rows:
        sizes = {c.env: len(rs) for c, rs in found.cells.items() if (c.label, c.capacity) == (label, k)}
        name = f"{label} K={k}"
        if absent := [e for e in envs if e not in sizes]:
            notes.append(
                f"{name} has no run on {', '.join(absent)}: aggregated over {len(sizes)} of {len(envs)} envs"
            )
        if len(set(sizes.values())) > 1:
            each = ", ".join(f"{e} {n}" for e, n in sizes.items())
            notes.append(f"{name} has unequal numbers of runs ({each}): all are used, n is the smallest")
        if min(sizes.values()) == 1:
            single.append(name)
        elif sum(sizes.values()) < 4:
            small.append(name)
    if single:
        notes.append(f"no interval where a task has one run only: {', '.join(single)}")
    if small:
        who = "every row" if len(small) == len(found.rows) else ", ".join(small)
        notes.append(
            f"fewer than 4 runs, so nothing is trimmed and the IQM is the mean; intervals are rough: {who}"
        )
    return notes


def _mixture_notes(runs: Sequence[StoredRun]) -> list[str]:
    """Warnings where runs were made by different code, versions or hardware, or with different settings."""
    notes = []
    for what, key, skip in (("made with", "fingerprint", ()), ("set to", "spec", AXES)):
        names = sorted({n for r in runs for n in r.record[key]} - set(skip))
        for name in names:
            counts = Counter(str(r.record[key].get(name)) for r in runs)
            if len(counts) > 1:
                shares = ", ".join(f"{v} ({plural(n, 'run')})" for v, n in sorted(counts.items()))
                notes.append(f"runs are {what} different {name}: {shares}")
    return notes
