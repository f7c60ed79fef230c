"""Table of the drift of the data in its two factors: the sampler's engine, and lag."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base.text import number
from ..statistics.results import Results
from ..statistics.scores import Array
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .captions import looks_of, run_facts, seeds
from .registry import SHEETS, Section
from .result_tables import Block, Sheet, SheetCell

DRIFT = ("engine", "lag", "both")
TAILS = {
    "tails_engine": "engine",
    "tails_lag": "lag",
    "tails_positive": "both, A > 0",
    "tails_negative": "both, A < 0",
    "tails_newer": "both, newer",
    "tails_older": "both, older",
}


def _fits(results: Results) -> bool:
    return any(str(run.spec.get("mismatch", "none")) != "none" for run in results)


def two_factors_of(run: StoredRun) -> dict[str, Array] | None:
    """Return KL[μ ‖ π] (k1) of a run's data by phase: engine, lag and both, where what samples is the first μ. Of a run
    that is blind to its sampler, whose own μ is the version, both is the sum of the two."""
    names = {"engine": "mismatch/kl_k1_engine_data", "lag": "mismatch/kl_k1_lag_data", "both": "kl_k1_data"}
    columns = run.columns([*names.values(), "mismatch/kl_k1"])
    if set(names.values()) <= columns.keys() and str(run.spec.get("behaviour")) != "version":
        return {part: columns[name] for part, name in names.items()}
    if not {"mismatch/kl_k1", "kl_k1_data"} <= columns.keys():
        return None
    engine, lag = columns["mismatch/kl_k1"], columns["kl_k1_data"]
    return {"engine": engine, "lag": lag, "both": engine + lag}


@SHEETS.register(
    "two_factors",
    Section(
        62,
        "Drift: engine and lag",
        "KL of the data from the newest policy (estimator k1, nats per decision) in its two factors, which add up: "
        "what sampled against the version that it stands for, and that version against the newest policy. Tails: "
        "shares of decisions whose ratio is above 2 or below ½, over gradient steps.",
        _fits,
    ),
)
def two_factors(results: Results, table: Table) -> Sheet:
    """KL in its two factors by method and K, mean over phases and runs and below it the last phase; and tails by
    factor, sign of the advantage and age."""
    looks, ks = looks_of(table), results.grid.capacities
    drift, tails = [], []
    for label, look in looks.items():
        for k in ks:
            runs = [r for r in results if r.label == label and int(r.spec["capacity"]) == k]
            name = f"{look.name}, K = {k}" if len(ks) > 1 else look.name
            parts = [of_run for run in runs if (of_run := two_factors_of(run)) is not None]
            if parts:
                drift.append((name, [_cell([of_run[part] for of_run in parts]) for part in DRIFT]))
            columns = [run.columns([f"mismatch/{tail}" for tail in TAILS]) for run in runs]
            if columns := [of_run for of_run in columns if of_run]:
                tails.append(
                    (name, [_cell([of_run[f"mismatch/{tail}"] for of_run in columns], True) for tail in TAILS])
                )
    blocks = [Block("KL (k1)", "algorithm", DRIFT, drift), Block("Tails", "algorithm", list(TAILS.values()), tails)]
    about = (
        f"means over phases and runs ({seeds(results.grid)} seeds), below them the last phase; newer, older: lag up to "
        "the minibatch's mean and above it"
    )
    return Sheet("Drift: engine and lag", [about, run_facts(table)], [b for b in blocks if b.rows], table.draft)


def _cell(columns: Sequence[Array], percent: bool = False) -> SheetCell:
    def text(value: float) -> str:
        return f"{100 * value:.2f}%" if percent else number(round(value, 4) + 0.0, 4)  # no -0.0000

    mean = float(np.mean([np.nanmean(column) for column in columns]))
    return SheetCell(text(mean), f"last {text(float(np.mean([column[-1] for column in columns])))}")
