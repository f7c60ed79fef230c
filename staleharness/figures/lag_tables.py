"""Tables by lag: scores (the risk table, the map of backward and forward lag), and drift by engine and lag."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.text_formatting import number, plural
from ..statistics.lag_curve import method_of
from ..statistics.method_labels import display_label, without_options
from ..statistics.results import Results
from ..statistics.retained_share import retention
from ..statistics.row_diagnostics import budget_columns
from ..statistics.scores import Array, random_returns
from ..statistics.table import Table
from ..store.stored_run import StoredRun
from .captions import run_facts, scale, seeds
from .palette import looks_of
from .registry import SHEETS, Section
from .table_markup import Block, Sheet, SheetCell

BANDS = ((0, 1), (2, 5), (6, 20), (21, math.inf))  # of the lag in training steps, as the lesson names them
WARM = ("fill_phases", "warm_phases")  # settings that say how many on-policy phases a run begins with
NOT_MEASURED = SheetCell("not measured")


class Setting(NamedTuple):
    """Source of the lag of a method's data."""

    k: int
    lag: str  # the lag model


def lags_of(results: Results) -> dict[Setting, float]:
    """Mean lag of each setting, over decisions, phases and the runs that recorded it: in gradient steps, or phases if
    runs did not record them."""
    lags: dict[Setting, list[float]] = {}
    for run in results:
        summary = run.record["summary"]
        lag = summary.get("gradient_lag_mean", summary.get("lag_mean"))
        if lag is not None:
            lags.setdefault(_setting(run.spec), []).append(float(lag))
    return {setting: float(np.mean(values)) for setting, values in lags.items()}


def _setting(spec: Mapping[str, object]) -> Setting:
    return Setting(int(str(spec["capacity"])), str(spec.get("lag", "")))


def band_of(lag: float) -> tuple[float, float]:
    """Band of a mean lag, which counts for the band below until it reaches the next one."""
    return [band for band in BANDS if lag >= band[0]][-1]


@SHEETS.register("risk_table")
def risk_table(results: Results, table: Table, *, base: str = "") -> Sheet:
    """Share of the score without lag that each method keeps, by band of the mean lag in training steps; darker cells
    keep more. `base`: the algorithm whose runs stand for those without lag, where a method has none of its own."""
    grid, score = results.grid, table.settings["score"]
    accuracy = table.accuracy
    lags = lags_of(results)
    cells = {(method_of(r.label), _setting(r.spec)): r.label for r in results}
    columns: list[tuple[str, Setting | None]] = []
    for band in BANDS:
        in_band = sorted((lag, setting) for setting, lag in lags.items() if band_of(lag) == band)
        columns += [(_heading(band, lag, setting, lags), setting) for lag, setting in in_band] or [
            (f"{band_name(band)}: –", None)
        ]

    def cell(method: str, setting: Setting | None) -> SheetCell:
        if setting is None or (label := cells.get((method, setting))) is None:
            return NOT_MEASURED
        reference = (base, setting.k) if base else None
        share = retention(grid, label, setting.k, score, base=reference, accuracy=accuracy)
        if share is None:
            return SheetCell("–")
        rows, ends = ((label, setting.k), reference or (label, 1)), ""
        fewest = min((len(runs) for row in rows for runs in grid.tasks(*row).values()), default=0)
        if fewest >= table.settings.get("fewest", 0) and share.low is not None and share.high is not None:
            ends = f"[{round(100 * share.low)}, {round(100 * share.high)}]"
        return SheetCell(f"{round(100 * share.share)}%", ends, min(1.0, max(0.0, share.share)))

    rows = {}
    for method in dict.fromkeys(method for method, _ in cells):
        rows[method] = (display_label(method), [cell(method, setting) for _, setting in columns])
    last = {method: (line[-1].shade or 0.0, line[-2].shade or 0.0) for method, (_, line) in rows.items()}
    lines = [rows[method] for method in sorted(rows, key=lambda m: last[m], reverse=True)]
    block = Block("Score kept", "algorithm", [heading for heading, _ in columns], lines)
    return Sheet("Score kept, by lag", [_about(results, table, accuracy), run_facts(table)], [block], table.draft)


def _about(results: Results, table: Table, accuracy: bool) -> str:
    grid, score = results.grid, table.settings["score"]
    envs = grid.envs if accuracy else list(random_returns(grid.envs, score))
    left_out = [env for env in grid.envs if env not in envs]
    measure = "accuracy" if accuracy else "(return − random) / (return without lag − random)"
    fewest, sizes = table.settings.get("fewest", 0), [len(runs) for runs in grid.cells.values()]
    ends = f"{table.settings['level']:.0%} bootstrap interval over seeds in brackets"
    if fewest > min(sizes, default=0):
        too_few = fewest > max(sizes, default=0)
        ends = "the runs are too few for an interval" if too_few else f"{ends}, of {fewest} or more"
    return (
        f"share of the score without lag that is kept, {measure}, mean over {', '.join(envs) or 'no environment'} and "
        f"seeds ({seeds(grid)}); {ends}; columns: bands of lag, and the mean lag in gradient steps; {score} "
        "scores"
    ) + (f"; no random return known for {', '.join(left_out)}" if left_out else "")


def _heading(band: tuple[float, float], lag: float, setting: Setting, lags: Mapping[Setting, float]) -> str:
    several_k = len({s.k for s in lags}) > 1
    steps = round(lag, 0 if lag >= 9.95 else 1)
    return f"{band_name(band)}: {steps:g} steps" + (f" (K = {setting.k})" if several_k else "")


def band_name(band: Sequence[float]) -> str:
    low, high = band
    return f"{low - 1:g}+" if high == math.inf else f"{low:g}–{high:g}"


def forward_steps(run: StoredRun) -> int:
    """N, gradient steps of a phase."""
    return int(run.spec.get("epochs", 1)) * int(run.spec.get("minibatches", 1))


def backward_lag(run: StoredRun) -> float:
    """Mean lag of the data in phases, after the warm-up."""
    lags = run.column("lag_mean")
    return float("nan") if lags is None else float(np.nanmean(lags[sum(int(run.spec.get(name, 0)) for name in WARM) :]))


def _method(label: str) -> str:
    return without_options(label, "epochs", "minibatches")


def _is_plane(results: Results) -> bool:
    """Return whether a method has several capacities and several N."""
    capacities, steps = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    for run in results:
        capacities[_method(run.label)].add(int(run.spec["capacity"]))
        steps[_method(run.label)].add(forward_steps(run))
    return any(len(capacities[method]) > 1 and len(steps[method]) > 1 for method in steps)


@SHEETS.register(
    "backward_forward",
    Section(
        35,
        "Backward and forward lag",
        "From left to right the data are older when a phase begins; from bottom to top the learner moves further from "
        "there (gradient steps a phase) before it sees new ones.",
        _is_plane,
    ),
)
def backward_forward(results: Results, table: Table) -> Sheet:
    """IQM over mean backward lag and gradient steps a phase, a map per method: score, interval and n in each cell."""
    shapes = {  # label -> gradient steps of a phase, its epochs, and minibatches of each
        run.label: (forward_steps(run), int(run.spec.get("epochs", 1)), int(run.spec.get("minibatches", 1)))
        for run in results
    }
    methods = sorted({_method(label) for label in shapes})
    ks, ordered = results.grid.capacities, sorted(set(shapes.values()), reverse=True)
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
            (r["capacity"], shapes[r["algorithm"]]): r
            for r in table.rows
            if r["iqm"] is not None and _method(r["algorithm"]) == method
        }
        lines = [
            (_row_name(shape, ordered), [_score_cell(rows.get((k, shape)), low, high) for k in ks]) for shape in ordered
        ]
        columns = [f"lag {number(lags[k], 1)}, K = {k}" for k in ks]
        blocks.append(Block(method, "forward ↑ backward →", columns, lines))
    return Sheet("Score over backward and forward lag", [about, run_facts(table)], blocks, table.draft)


def _row_name(shape: tuple[int, int, int], shapes: Sequence[tuple[int, int, int]]) -> str:
    """`4 steps`, or `4 steps (2 × 2)` where other epochs and minibatches give as many."""
    steps, epochs, minibatches = shape
    is_only = [n for n, *_ in shapes].count(steps) == 1
    return plural(steps, "step") + ("" if is_only else f" ({epochs} × {minibatches})")


def _score_cell(row: Mapping[str, Any] | None, low: float, high: float) -> SheetCell:
    if row is None:
        return SheetCell("–")
    ends = "–" if row["iqm_low"] is None else f"{number(row['iqm_low'])}, {number(row['iqm_high'])}"
    return SheetCell(number(row["iqm"]), f"[{ends}] n = {row['n_runs']}", (row["iqm"] - low) / (high - low))


DRIFT = ("engine", "lag", "both")
SAMPLER = {"mismatch/kl_k3": ("k3", 6), "mismatch/surprisal_gap": ("surprisal gap", 2)}  # column -> heading, digits
# If the mean of a run is beyond these, its sampler was not its trainer.
LIMITS = {"mismatch/kl_k3": 1e-7, "mismatch/surprisal_gap": 3.0}
TAILS = {
    "mismatch/tails_engine": "engine",
    "mismatch/tails_lag": "lag",
    "mismatch/tails_positive": "both, A > 0",
    "mismatch/tails_negative": "both, A < 0",
    "mismatch/tails_newer": "both, newer",
    "mismatch/tails_older": "both, older",
}


def samples_apart(run: StoredRun) -> bool:
    """Return whether a run's sampler was not its trainer, by its settings or as measured: another engine, number format
    or a kept cache is not set by `MISMATCH`."""
    if str(run.spec.get("mismatch", "none")) != "none":
        return True
    means = run.record["summary"]
    return any(abs(means.get(name, 0.0)) > bound for name, bound in LIMITS.items())


def two_factors_of(run: StoredRun) -> dict[str, Array] | None:
    """Return KL[sampler ‖ newest policy] (k1) of a run's data by phase: the parts of engine and lag, and both. For a
    run that does not know its sampler, whose recorded μ is the version's policy, both is the sum of the parts."""
    names = {"engine": "mismatch/kl_k1_engine_data", "lag": "mismatch/kl_k1_lag_data", "both": "kl_k1_data"}
    columns = budget_columns(run, [*names.values(), "mismatch/kl_k1"])
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
        "what sampled against the version that it stands for, and that version against the newest policy. Sampler: the "
        "first of these by k3, and the surprisal gap in standard errors. Tails: shares of decisions whose ratio is "
        "above 2 or below ½, over gradient steps.",
        lambda results: any(map(samples_apart, results)),
    ),
)
def two_factors(results: Results, table: Table) -> Sheet:
    """KL in its two factors by method and K, mean over phases and runs and below it the last phase; the sampler's k3
    and surprisal gap; and tails by factor, sign of the advantage and age."""
    looks, ks = looks_of(table), results.grid.capacities
    drift, sampler, tails = [], [], []
    for label, look in looks.items():
        for k in ks:
            runs = [r for r in results if r.label == label and int(r.spec["capacity"]) == k]
            name = f"{look.name}, K = {k}" if len(ks) > 1 else look.name
            factors = [of_run for run in runs if (of_run := two_factors_of(run)) is not None]
            if factors:
                drift.append((name, [_drift_cell([of_run[part] for of_run in factors]) for part in DRIFT]))
            if columns := _columns(runs, SAMPLER):
                cells = [_drift_cell([run[c] for run in columns], digits) for c, (_, digits) in SAMPLER.items()]
                sampler.append((name, cells))
            if columns := _columns(runs, TAILS):
                tails.append((name, [_drift_cell([run[tail] for run in columns], percent=True) for tail in TAILS]))
    blocks = [
        Block("KL (k1)", "algorithm", DRIFT, drift),
        Block("Sampler", "algorithm", [heading for heading, _ in SAMPLER.values()], sampler),
        Block("Tails", "algorithm", list(TAILS.values()), tails),
    ]
    about = (
        f"means over phases and runs ({seeds(results.grid)} seeds), below them the last phase; newer, older: lag up to "
        "the minibatch's mean and above it"
    )
    return Sheet("Drift: engine and lag", [about, run_facts(table)], [b for b in blocks if b.rows], table.draft)


def _columns(runs: Sequence[StoredRun], names: Collection[str]) -> list[dict[str, Array]]:
    """Return columns of the metrics by name, of the runs that have all of them."""
    columns = [budget_columns(run, [*names]) for run in runs]
    return [c for c in columns if len(c) == len(names)]


def _drift_cell(columns: Sequence[Array], digits: int = 4, percent: bool = False) -> SheetCell:
    def text(value: float) -> str:
        return f"{100 * value:.2f}%" if percent else number(round(value, digits) + 0.0, digits)  # no -0.0000

    mean = float(np.mean([np.nanmean(column) for column in columns]))
    return SheetCell(text(mean), f"last {text(float(np.mean([column[-1] for column in columns])))}")
