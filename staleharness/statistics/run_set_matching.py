"""Matching of two sets of runs: shared cells, the runs to compare in each, and differences in settings or code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..base.parsing import canonical_json
from ..base.text_formatting import listing, plural, word
from ..errors import UserError
from ..store.run_grid import Cell, cell_of, describe_cell, drop_doubtful, flat_settings, grid
from ..store.stored_run import StoredRun, with_newer_settings
from .scores import axis

MAX_NAMES = 12  # names in one note
Pair = tuple[list[StoredRun], list[StoredRun]]  # of one cell: A and B, each sorted by seed


@dataclass(frozen=True)
class Match:
    """Shared cells in the order of a table, and notes on the rest."""

    cells: dict[Cell, Pair]
    notes: list[str]


def match(a: Iterable[StoredRun], b: Iterable[StoredRun]) -> Match:
    """Put the runs of two sides into the cells (algorithm, K, environment) that both have.

    Where a side has a cell with several settings, those of the other side are compared, with a note. Raises
    `UserError` where no cell is shared, or where a seed remains twice.
    """
    a = drop_doubtful(a)
    runs = with_newer_settings([*a, *drop_doubtful(b)])
    constant = _constant_settings(runs)
    if constant:
        specs = [{name: x for name, x in run.spec.items() if name not in constant} for run in runs]
        runs = [replace(run, record={**run.record, "spec": spec}) for run, spec in zip(runs, specs, strict=True)]
    a, b = runs[: len(a)], runs[len(a) :]
    with_n = any(" N=" in run.label for run in runs)  # all labels need N then, as one side may not have swept it
    left, right = _cells(a, with_n), _cells(b, with_n)
    common = sorted(set(left) & set(right), key=lambda c: (c.capacity, c.label, c.env))
    if not common:
        raise UserError(f"A and B share no cell: A has {holdings(left)}; B has {holdings(right)}")
    shared_cells: dict[Cell, Pair] = {}
    notes = [_only("A", set(left) - set(right)), _only("B", set(right) - set(left))]
    for cell in common:
        runs_a, runs_b = _alike(left[cell], right[cell])
        for side, other, selection, all_runs in (("A", "B", runs_a, left[cell]), ("B", "A", runs_b, right[cell])):
            if len(selection) < len(all_runs):
                count = plural(len(all_runs) - len(selection), "run")
                notes.append(f"{side} has {count} of {describe_cell(cell)} with settings that {other} lacks (left out)")
        shared_cells[cell] = _in_order("A", cell, runs_a), _in_order("B", cell, runs_b)
    return Match(shared_cells, [*filter(None, notes), *differences(shared_cells)])


def is_paired(pair: Pair) -> bool:
    """Return whether seed s of A pairs with seed s of B: the same seeds, and one setting throughout each side.

    The harness draws the same random numbers for the same seed, and within every pair the same settings differ.
    """
    a, b = pair
    return [r.seed for r in a] == [r.seed for r in b] and all(len(by_settings(s)) == 1 for s in pair)


def identical(pair: Pair) -> int:
    """Count seeds whose runs are the same bit for bit, by the checksum of their metrics."""
    other = {r.seed: r.record["metrics_sha256"] for r in pair[1]}
    return sum(other.get(r.seed) == r.record["metrics_sha256"] for r in pair[0])


def differences(shared_cells: Mapping[Cell, Pair]) -> list[str]:
    """Note each setting and entry of the fingerprint whose values in A and B are not the same in every cell."""
    notes = []
    for words, read in (("set", _settings), ("made", _fingerprint)):
        counts: dict[str, tuple[Counter[str], Counter[str]]] = {}
        for pair in shared_cells.values():
            sides = [[read(run) for run in side] for side in pair]
            for name in sorted({n for side in sides for values in side for n in values}):
                texts = [["not recorded" if v.get(name) is None else word(v[name]) for v in side] for side in sides]
                counts_a, counts_b = Counter(texts[0]), Counter(texts[1])
                if set(counts_a) != set(counts_b):
                    total = counts.setdefault(name, (Counter(), Counter()))
                    total[0].update(counts_a)
                    total[1].update(counts_b)
        for name, (counts_a, counts_b) in sorted(counts.items()):
            notes.append(f"{words} differently: {name} = {_shares(counts_a)} in A, {_shares(counts_b)} in B")
    return notes


def holdings(cells: Iterable[Cell]) -> str:
    """Describe the cells of a side."""
    cells = list(cells)
    ks = [f"K={k}" for k in sorted({c.capacity for c in cells})]
    axes = (sorted({c.label for c in cells}), sorted({c.env for c in cells}), ks)
    return " × ".join(listing(names, MAX_NAMES) for names in axes)


def _constant_settings(runs: Sequence[StoredRun]) -> frozenset[str]:
    """Settings that some runs lack and that have one value in all others, which makes no difference between runs."""
    names = {name for run in runs for name in run.spec}
    values = {n: {canonical_json(run.spec[n]) for run in runs if n in run.spec} for n in names}
    return frozenset(n for n in names if len(values[n]) == 1 and not all(n in run.spec for run in runs))


def _cells(runs: Iterable[StoredRun], with_n: bool) -> dict[Cell, list[StoredRun]]:
    cells: dict[Cell, list[StoredRun]] = {}
    for run in sorted(runs, key=lambda r: r.id):
        label = run.label
        if with_n and (n := axis(run, "N")) is not None and " N=" not in label:
            run = replace(run, record={**run.record, "label": f"{label} N={run.spec[n]}"})
        cells.setdefault(cell_of(run), []).append(run)
    return cells


def _alike(a: list[StoredRun], b: list[StoredRun]) -> Pair:
    """Select the runs of a cell with the one setting that both share, where a side mixes settings; otherwise all."""
    by_setting_a, by_setting_b = by_settings(a), by_settings(b)
    common = set(by_setting_a) & set(by_setting_b)
    if max(len(by_setting_a), len(by_setting_b)) > 1 and len(common) == 1:
        (key,) = common
        return by_setting_a[key], by_setting_b[key]
    return a, b


def by_settings(runs: Iterable[StoredRun]) -> dict[str, list[StoredRun]]:
    """Group runs by all settings but the seed, written as JSON."""
    groups: dict[str, list[StoredRun]] = {}
    for run in runs:
        groups.setdefault(canonical_json({**run.spec, "seed": None}), []).append(run)
    return groups


def _in_order(side: str, cell: Cell, runs: list[StoredRun]) -> list[StoredRun]:
    try:
        return grid(runs).cells[cell]
    except UserError as error:
        raise UserError(f"{side}: {error}") from error


def _only(side: str, cells: set[Cell]) -> str:
    names = [describe_cell(c) for c in sorted(cells, key=lambda c: (c.capacity, c.label, c.env))]
    return f"only {side} has {listing(names, MAX_NAMES)}" if names else ""


def _settings(run: StoredRun) -> dict[str, Any]:
    """Settings that a cell and a seed leave open, hyper-parameters under their method's name."""
    return {k: v for k, v in flat_settings(run.spec).items() if k not in ("algorithm", "capacity", "env", "seed")}


def _fingerprint(run: StoredRun) -> dict[str, Any]:
    return {k: v for k, v in run.record["fingerprint"].items() if k not in run.spec}


def _shares(counts: Counter[str]) -> str:
    """Text such as `0.1`, or `0.1 (3 runs) or 0.2 (6 runs)`."""
    if len(counts) == 1:
        return next(iter(counts))
    return " or ".join(f"{value} ({plural(n, 'run')})" for value, n in sorted(counts.items()))
