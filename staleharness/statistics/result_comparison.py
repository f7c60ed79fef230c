"""Difference B − A of two result sets, in every shared cell and over environments, with bootstrap intervals.

Paired seeds are resampled together (`run_set_matching.is_paired`); otherwise A and B are resampled independently, in
both cases within each environment (stratified).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..base.text_formatting import listing, plural
from ..store.run_grid import Cell, RunGrid
from ..store.stored_run import StoredRun
from .bootstrap import LEVEL, improvement, pooled_iqm, rliable_interval
from .run_set_matching import Pair, identical, is_paired, match
from .scores import AUTO, Array, Normaliser, final_score, normaliser, resolve_auto, score_in_words

COLUMNS = tuple(
    "algorithm env capacity scale n_a n_b n_envs seeds identical a b difference difference_low difference_high "
    "probability probability_low probability_high".split()
)
NAMES = 6  # of rows in a note


@dataclass(frozen=True)
class Comparison:
    """Scores of A and B per shared cell (`cells`, raw means) and per algorithm and K (`rows`, IQM of normalised
    scores).

    Both have the keys of `COLUMNS`: `difference` is B − A, `probability` that a run of B scores higher than a run of A
    (ties half), `seeds` the way of resampling, or identical: then every run is, and `identical` counts the seeds whose
    runs are equal bit for bit. An end of an interval that does not exist is None.
    """

    cells: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    notes: list[str]
    settings: dict[str, Any]  # score, accuracy, measure, normalise, constants, their note, reps, engine, level, envs

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare_runs(
    a: Iterable[StoredRun], b: Iterable[StoredRun], *, score: str = AUTO, normalise: str = AUTO, reps: int = 2000
) -> Comparison:
    """Compare two sets of runs cell by cell, with the options of `aggregate.table` but for the engine.

    Normalisation is over the shared cells of both sides together. Raises `UserError` where no cell is shared or an
    option is unknown.
    """
    matching = match(a, b)
    common_cells = matching.cells
    all_runs = [run for pair in common_cells.values() for side in pair for run in side]
    score, normalise = resolve_auto(all_runs, score, normalise)
    run_grid = RunGrid({cell: [*x, *y] for cell, (x, y) in common_cells.items()})
    scale, raw = normaliser(normalise, run_grid, score), normaliser("raw", run_grid, score)

    row = functools.partial(_row, score=score, reps=reps)
    cell_rows = [
        row({cell: pair}, raw, lambda c: np.asarray(c.mean(axis=-1)), "mean") for cell, pair in common_cells.items()
    ]
    kinds = list(dict.fromkeys((c.label, c.capacity) for c in common_cells))
    members = [{c: p for c, p in common_cells.items() if (c.label, c.capacity) == kind} for kind in kinds]
    rows = [
        row(of_kind, scale, pooled_iqm, f"IQM, {normalise}")
        if has_equal_shares(of_kind)
        else row(of_kind, scale, _mean_of_iqms, f"mean of IQMs, {normalise}")
        for of_kind in members
    ]
    settings = {
        "score": score,
        "accuracy": resolve_auto(all_runs, AUTO, AUTO)[1] == "raw",
        "measure": score_in_words(all_runs, score),
        **scale.settings,
        "reps": reps,
        "engine": "rliable",
        "level": LEVEL,
        "envs": sorted({c.env for c in common_cells}),
    }
    n_pairs = sum(len({run.seed for run in x} & {run.seed for run in y}) for x, y in common_cells.values())
    notes = [
        *matching.notes,
        *(f"all runs on {e} have the same score: normalised to 0.5" for e in scale.degenerate),
        *_on_weights([of_kind for of_kind in members if not has_equal_shares(of_kind)]),
        *_on_intervals(cell_rows, n_pairs),
    ]
    return Comparison(cell_rows, rows, notes, settings)


def has_equal_shares(cells: Mapping[Cell, Pair]) -> bool:
    """Return whether every environment has the same share of the runs of A as of those of B."""
    a, b = (np.array([len(pair[side]) for pair in cells.values()]) for side in (0, 1))
    return bool((a * b.sum() == b * a.sum()).all())


def _mean_of_iqms(*columns: Array) -> Array:
    """Mean over environments of their IQMs: columns [..., runs] each -> [...]."""
    return np.asarray(np.mean([pooled_iqm(column) for column in columns], axis=0))


def _on_weights(kinds: Sequence[Mapping[Cell, Pair]]) -> list[str]:
    firsts = [next(iter(cells)) for cells in kinds]
    names = listing([f"{first.label} K={first.capacity}" for first in firsts], NAMES)
    text = "A and B have different shares of runs per environment, so that each environment weighs the same"
    return [f"{text}: {names}"] if firsts else []


def _row(
    cells: Mapping[Cell, Pair], scale: Normaliser, of: Callable[..., Array], kind: str, score: str, reps: int
) -> dict[str, Any]:
    first = next(iter(cells))
    a, b = (
        [scale(cell.env, np.array([final_score(r, score) for r in pair[side]])) for cell, pair in cells.items()]
        for side in (0, 1)
    )
    pairing = [is_paired(pair) for pair in cells.values()]
    matches = [identical(pair) for pair in cells.values()]
    are_identical = sum(matches) == sum(map(len, a)) == sum(map(len, b))
    way = "paired" if all(pairing) else "partly paired" if any(pairing) else "independent"
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row |= {
        "algorithm": first.label,
        "capacity": first.capacity,
        "scale": kind,
        "env": first.env if len(cells) == 1 else f"{len(cells)} envs",
        "n_envs": len(cells),
        "n_a": min(map(len, a)),
        "n_b": min(map(len, b)),
        "seeds": "identical" if are_identical else way,
        "identical": sum(matches),
        "a": float(of(*a)),
        "b": float(of(*b)),
        "probability": float(improvement(b, a)),
    }
    row["difference"] = row["b"] - row["a"]
    if min(map(len, (*a, *b))) < 2:
        return row  # one run has no spread
    name = ("comparison", *first, len(cells))
    low, high = difference_interval(a, b, pairing, of, name=name, reps=reps)
    for i, key in enumerate(("difference", "probability")):
        row |= {f"{key}_low": float(low[i]), f"{key}_high": float(high[i])}
    return row


def difference_interval(
    a: Sequence[Array],
    b: Sequence[Array],
    pairing: Sequence[bool],
    of: Callable[..., Array],
    *,
    name: tuple[Any, ...],
    reps: int,
) -> tuple[Array, Array]:
    """Compute low and high ends [2] of of(*b) − of(*a) and of P(b > a), for columns [runs_t] of each environment t.

    Indices into the columns are resampled: where `pairing[t]`, one draw of indices serves both sides, otherwise each
    side has its own. `of` takes columns [..., runs_t] and reduces the last axis.
    """
    columns = [c for x, y, together in zip(a, b, pairing, strict=True) for c in ([x] if together else [x, y])]
    places = [np.arange(len(c), dtype=np.float64) for c in columns]

    def statistic(*resamples: Array) -> Array:
        rest = (resample.astype(np.intp) for resample in resamples)
        left, right = [], []
        for x, y, together in zip(a, b, pairing, strict=True):
            i = next(rest)
            left.append(x[i])
            right.append(y[i if together else next(rest)])
        return np.stack([of(*right) - of(*left), improvement(right, left)], axis=-1)

    return rliable_interval(statistic, places, name=name, reps=reps)


def _on_intervals(cells: Sequence[Mapping[str, Any]], pairs: int) -> list[str]:
    """Notes on all cells together, which have `pairs` pairs of runs, and on the reliability of their intervals."""
    notes = []
    matches = sum(c["identical"] for c in cells)
    if matches:
        notes.append(f"{matches} of {plural(pairs, 'pair')} of runs are identical bit for bit")
    with_interval = [c for c in cells if c["difference_low"] is not None]
    excluding = sum(not c["difference_low"] <= 0 <= c["difference_high"] for c in with_interval)
    if with_interval:
        verb = "excludes" if excluding == 1 else "exclude"
        chance = "; by chance alone 1 in 20 would, more often with few seeds" if len(with_interval) > 1 else ""
        notes.append(f"{excluding} of {plural(len(with_interval), 'interval')} of cells {verb} 0{chance}")
    if single := len(cells) - len(with_interval):
        notes.append(f"no interval where a side has one run only: {plural(single, 'cell')}")
    if small := sum(min(c["n_a"], c["n_b"]) < 4 for c in with_interval):
        notes.append(f"fewer than 4 seeds on a side, so intervals are rough: {plural(small, 'cell')}")
    return notes
