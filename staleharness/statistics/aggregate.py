"""Aggregate scores with intervals, per algorithm and buffer capacity, from stored runs; single runs in place of an
interval of few runs, which would be too narrow."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base import __version__
from ..base.files import read_json, tree_digest, write_json
from ..errors import UserError, nearest
from ..store.run_grid import RunGrid, cell_of, grid
from ..store.stored_run import StoredRun
from .bootstrap import ENGINES, LEVEL, Engine, aggregates, pooled_iqm
from .retained_share import note_on_shares, retained_shares, retention_sentences
from .scores import (
    AUTO,
    Array,
    Normaliser,
    final_score,
    learning_curve,
    normaliser,
    normaliser_of,
    resolve_auto,
    score_in_words,
    unit,
)
from .table import AGGREGATES, COLUMNS, Table, extent
from .table_notes import (
    missing_runs,
    on_counts,
    on_lag,
    on_ledger,
    on_missing,
    on_mixtures,
    on_starts,
    on_untrained,
    on_warnings,
)

PACKAGE = Path(__file__).parents[1]
MAKERS = [PACKAGE / name for name in ("base", "store", "statistics")]  # a change in one invalidates cached tables
MIN_RUNS = 5  # of a cell with an interval
COVERAGE = (  # simulated, of the mean of normal scores
    "A percentile interval holds the true mean in about 50% of cases with 2 seeds, 75% with 3, 83% with 5. With fewer "
    "than 5 seeds the single runs are shown instead, and the tests use Student's intervals."
)
# Seeds: shares of percentile intervals that cover the true mean, and the true IQM, of normal scores (simulated).
SHARE_COVERED = {5: (0.83, 0.90), 8: (0.90, 0.93), 12: (0.91, 0.94)}


def table(
    runs: Iterable[StoredRun] | RunGrid,
    expected: Sequence[Mapping[str, Any]] = (),
    *,
    score: str = AUTO,
    normalise: str = AUTO,
    reps: int = 2000,
    engine: str = "rliable",
) -> Table:
    """Aggregate runs over environments and seeds: one row per (algorithm, capacity), sorted by capacity and name.

    `expected` lists the runs of the study, each {label, capacity, env, seed, problem (a word or None)}, for the notes
    on missing ones. `score` is `sampled` or `deterministic`; `normalise` is `minmax`, `ppo`, `frozen` or `raw` (see
    `scores.normaliser`); `auto` is the usual one for the kind of task. `engine` computes the intervals: `rliable`, or
    `quick`, our own bootstrap, for a preview without importing rliable. Raises `UserError` for an unknown option, or a
    normalisation without runs. The result does not depend on the order of the runs.
    """
    if engine not in ENGINES:
        raise UserError(f"engine={engine!r} is not known; {nearest(engine, ENGINES)}")
    if not isinstance(reps, int) or reps < 10:
        raise UserError(f"reps={reps}: a bootstrap needs at least 10 resamples, 2000 for two steady digits")
    run_grid = grid(runs)
    runs = run_grid.runs
    score, normalise = resolve_auto(runs, score, normalise)
    scale = normaliser(normalise, run_grid, score)
    missing = missing_runs(run_grid, expected)
    keys = sorted({(k, label) for label, k in run_grid.rows} | {(c.capacity, c.label) for c, _, _ in missing})
    envs = sorted({*run_grid.envs, *(c.env for c, _, _ in missing)})
    absent = Counter((c.label, c.capacity) for c, _, _ in missing)
    rows = [_row(run_grid, label, k, scale, score, ENGINES[engine], reps, absent[label, k]) for k, label in keys]
    accuracy = resolve_auto(runs, AUTO, AUTO)[1] == "raw"
    shares = retained_shares(run_grid, score, accuracy)
    for row in rows:
        if share := shares.get((row["algorithm"], row["capacity"])):
            row |= {"retained": share.value, "retained_low": share.low, "retained_high": share.high}
    if normalise == "raw" and not accuracy:  # a return has no 1 to stay below
        for row in rows:
            row |= dict.fromkeys(("optimality_gap", "optimality_gap_low", "optimality_gap_high"))
    ks = sorted({k for k, _ in keys})
    settings = {
        "score": score,
        "accuracy": accuracy,
        "measure": score_in_words(runs, score),
        "unit": unit(runs),
        **scale.settings,
        "reps": reps,
        "engine": engine,
        "level": LEVEL,
        "envs": envs,
        "capacities": ks,
        **extent(runs),
    }
    lags = {(row["algorithm"], row["capacity"]): row["lag_mean"] for row in rows}
    if sentences := retention_sentences(run_grid, score, accuracy, shares, lags):
        settings["answers"] = sentences
    notes = [
        *on_missing(missing, len(runs) + len(missing), envs, ks),
        *on_counts(run_grid, envs),
        *(f"all runs on {e} have the same score: normalised to 0.5" for e in scale.degenerate),
        *on_warnings(runs),
        *on_lag(runs),
        *on_ledger(runs),
        *on_untrained(run_grid, score),
        *note_on_shares(run_grid, score, accuracy),
        *on_starts(runs),
        *on_mixtures(runs),
    ]
    return Table(rows, notes, settings)


def cached_table(
    folder: Path, runs: Iterable[StoredRun] | RunGrid, expected: Sequence[Mapping[str, Any]] = (), **options: Any
) -> Table:
    """Return `table(...)`, cached in `folder/table.json` while code, runs, `expected` and options are the same.

    A cached table needs neither rliable nor pandas.
    """
    path = folder / "table.json"
    run_grid = grid(runs)
    key = _key(run_grid.runs, expected, options)
    try:
        entry = read_json(path)
        if entry["key"] == key:
            return Table(**entry["table"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # absent, or written by other code: computed below
    result = table(run_grid, expected, **options)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, {"key": key, "table": result.to_json()})
    return result


def _key(runs: Sequence[StoredRun], expected: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> str:
    content = {
        "code": [__version__, tree_digest(*MAKERS)],
        "runs": sorted([r.id, r.seal, r.label] for r in runs),
        "expected": sorted(json.dumps(dict(e), sort_keys=True) for e in expected),
        "options": dict(options),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _row(
    run_grid: RunGrid, label: str, k: int, scale: Normaliser, score: str, engine: Engine, reps: int, missing: int
) -> dict[str, Any]:
    members = run_grid.tasks(label, k)
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {"algorithm": label, "capacity": k, "n_runs": 0, "n_tasks": len(members), "missing": missing}
    row["env"] = next(iter(members)) if len(members) == 1 else f"{len(members)} envs"
    if not members:
        return row
    row["n_runs"] = min(len(rs) for rs in members.values())

    scores = [np.array([scale(env, final_score(r, score)) for r in rs]) for env, rs in members.items()]
    row |= dict(zip(AGGREGATES, engine.points(*scores).tolist(), strict=True))
    row |= _interval(AGGREGATES, aggregates, scores, (label, k), engine, reps)
    areas = [np.array([area(r, scale, score) for r in rs]) for rs in members.values()]
    if np.isfinite(np.concatenate(areas)).all():
        row["auc"] = float(pooled_iqm(*areas))
        row |= _interval(("auc",), lambda *c: pooled_iqm(*c)[..., None], areas, (label, k), engine, reps)

    runs = run_grid.members(label, k)
    row["raw_mean"] = float(np.mean([final_score(r, score) for r in runs]))
    for name, source in (("lag_mean", "lag_mean"), ("tv", "tv_data"), ("ess", "ess_data"), ("clipped", "clipped")):
        values = [v for r in runs if (v := r.record["summary"].get(source)) is not None]
        row[name] = float(np.mean(values)) if values else None
    row["seconds"] = float(np.mean([r.record["seconds"]["total"] for r in runs]))
    return row


def _interval(
    names: Sequence[str],
    statistic: Callable[..., Array],
    columns: Sequence[Array],
    cell: tuple[str, int],
    engine: Engine,
    reps: int,
) -> dict[str, float]:
    """Return {name_low, name_high} of each name; empty where a task has a single run."""
    if min(len(c) for c in columns) < 2:
        return {}
    low, high = engine.interval(statistic, columns, name=(names[0], *cell), reps=reps)
    ends = {"low": low.tolist(), "high": high.tolist()}
    return {f"{name}_{end}": values[i] for i, name in enumerate(names) for end, values in ends.items()}


def area(run: StoredRun, scale: Normaliser, score: str) -> float:
    """Mean height of a run's normalised learning curve (trapezoid rule); NaN with fewer than two evaluations.

    One number per run, before any resampling: a bootstrap over checkpoints would break each curve apart.
    """
    steps, returns = learning_curve(run, score)
    if len(steps) < 2:
        return float("nan")
    return float(np.trapezoid(scale(cell_of(run).env, returns), steps) / (steps[-1] - steps[0]))


def coverage_text(seeds: int) -> str:
    """Actual coverage of nominal 95 % intervals of that many seeds, in words; empty where it is not known."""
    if seeds not in SHARE_COVERED:
        return ""
    mean, iqm = SHARE_COVERED[seeds]
    sample = f"{seeds} seeds on one environment"
    return f", which of {sample} cover the true mean in {mean:.0%} and the true IQM in {iqm:.0%} of cases"


def show_single_runs(table: Table, run_grid: RunGrid) -> Table:
    """Remove the intervals of rows of fewer than `MIN_RUNS` runs per environment, and give such rows `dots`: {name of
    an aggregate: [values of its runs]}. The settings of the table get `fewest`."""
    scale, score = normaliser_of(table), table.settings["score"]

    def dots(runs: Sequence[StoredRun]) -> dict[str, list[float]]:
        finals = [float(scale(run.spec["env"], final_score(run, score))) for run in runs]
        gaps, areas = [1 - min(x, 1.0) for x in finals], [area(run, scale, score) for run in runs]
        return dict.fromkeys(AGGREGATES, finals) | {"optimality_gap": gaps, "auc": areas}

    rows: list[dict[str, Any]] = []
    for row in table.rows:
        if 0 < row["n_runs"] < MIN_RUNS:
            members = run_grid.members(row["algorithm"], row["capacity"])
            ends = {f"{name}_{end}": None for name in (*AGGREGATES, "auc") for end in ("low", "high")}
            row = {**row, **ends, "dots": dots(members)}
        rows.append(row)
    return replace(table, rows=rows, settings=table.settings | {"fewest": MIN_RUNS})
