"""Score over backward and forward lag: how old the data are, and how far the learner moves while it trains on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..base.text import number
from ..statistics.labels import without_option
from ..statistics.results import Results
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .captions import made, scale
from .registry import SHEETS, Section
from .sheet import Block, Entry, Sheet


def forward_steps(run: StoredRun) -> int:
    """N, gradient steps of a phase."""
    return int(run.spec.get("epochs", 1)) * int(run.spec.get("minibatches", 1))


def backward_lag(run: StoredRun) -> float:
    """Mean lag of the data in phases, once the warm-up is over."""
    lags = run.column("lag_mean")
    return float("nan") if lags is None else float(np.nanmean(lags[int(run.spec.get("warm_phases", 0)) :]))


def _method(label: str) -> str:
    return without_option(without_option(label, "epochs"), "minibatches")


def _plane(results: Results) -> bool:
    """Whether some method has several capacities and several N."""
    found = {(_method(r.label), int(r.spec["capacity"]), forward_steps(r)) for r in results}
    return any(
        len({k for m, k, _ in found if m == method}) > 1 and len({n for m, _, n in found if m == method}) > 1
        for method in {m for m, _, _ in found}
    )


@SHEETS.register(
    "backward_forward",
    Section(
        35,
        "Backward and forward lag",
        "From left to right the data are older when a phase begins; from bottom to top the learner moves further from "
        "there (gradient steps a phase) before it sees new ones.",
        _plane,
    ),
)
def backward_forward(results: Results, table: Table) -> Sheet:
    """IQM over mean backward lag and gradient steps a phase, a map per method: score, interval and n in each cell."""
    steps = {run.label: forward_steps(run) for run in results}
    methods = sorted({_method(label) for label in steps})
    ks, ns = results.grid.capacities, sorted(set(steps.values()), reverse=True)
    lags = {k: float(np.nanmean([backward_lag(r) for r in results if int(r.spec["capacity"]) == k])) for k in ks}
    warm = sorted({int(run.spec.get("warm_phases", 0)) for run in results})
    about = f"IQM with its {table.settings['level']:.0%} stratified bootstrap interval; {scale(table)}"
    if warm != [0]:
        about += f"; all cells go on from the same policy, after {' or '.join(map(str, warm))} on-policy phases"
    ends = [r["iqm"] for r in table.rows if r["iqm"] is not None]
    low, high = min([0.0, *ends]), max([1.0, *ends])
    blocks = []
    for method in methods:
        rows = {
            (r["capacity"], steps[r["algorithm"]]): r
            for r in table.rows
            if r["iqm"] is not None and _method(r["algorithm"]) == method
        }
        lines = [(f"{n} steps", [_entry(rows.get((k, n)), low, high) for k in ks]) for n in ns]
        columns = [f"lag {number(lags[k], 1)}, K = {k}" for k in ks]
        blocks.append(Block(method, "forward ↑ backward →", columns, lines))
    return Sheet("Score over backward and forward lag", [about, made(table)], blocks, table.draft)


def _entry(row: Mapping[str, Any] | None, low: float, high: float) -> Entry:
    if row is None:
        return Entry("–")
    ends = "–" if row["iqm_low"] is None else f"{number(row['iqm_low'])}, {number(row['iqm_high'])}"
    return Entry(number(row["iqm"]), f"[{ends}] n = {row['n_runs']}", (row["iqm"] - low) / (high - low))
