"""Notes below a table: missing runs, small cells, mixed versions, less lag than promised, ledger, no learning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..base.text_formatting import listing, number, plural
from ..store.run_grid import Cell, RunGrid
from ..store.stored_run import StoredRun
from .row_diagnostics import lags_of, ledger_of, mean_lag
from .scores import final_score, score_before_training

SHORT_LAG = 0.75  # share of the expected mean lag below which there is a note
SURE = 2.0  # standard errors by which a score has to be above that of the untrained policy
NEAR = 0.02  # relative difference of scores before training, beyond which there is a note
BIAS = 0.01  # relative difference in length between trained rows and all, from which there is a note


def on_lag(runs: Sequence[StoredRun]) -> list[str]:
    """Note less lag than the lag model has in the long run, and a largest lag below its cap."""
    short, below_cap, differences = [], [], []
    groups: dict[tuple[int, str], list[StoredRun]] = {}
    for run in runs:
        if run.record.get("promise") and any(lags_of([run], "trained").values()):
            groups.setdefault((int(run.spec["capacity"]), str(run.spec["lag"])), []).append(run)
    several_lags = len({lag for _, lag in groups}) > 1
    for (k, lag), members in sorted(groups.items()):
        place = f"K = {k}" + (f", LAG={lag}" if several_lags else "")
        promise, trained = members[0].record["promise"], lags_of(members, "trained")
        mean, mean_generated, largest = mean_lag(trained), mean_lag(lags_of(members, "realised")), max(trained)
        if promise["mean"] is not None and mean < SHORT_LAG * promise["mean"]:
            phases = max(int(run.record["phases"]) for run in members)
            short.append(
                f"{place} trained at a mean lag of {number(mean)} phases, not {number(promise['mean'])} "
                f"({plural(phases, 'phase')})"
            )
        if largest < promise["cap"]:
            below_cap.append(
                f"{place}: data may be {plural(promise['cap'], 'phase')} old, and the oldest trained on were {largest}"
            )
        if abs(mean - mean_generated) > 0.005:
            differences.append(
                f"{place}: {number(mean_generated)} of all generated data, {number(mean)} of those trained on"
            )
    notes = []
    if short:
        lag = "the lag model" if several_lags else f"LAG={next(iter(groups))[1]}"
        notes.append(f"less lag than {lag} has with a full buffer: {'; '.join(short)}")
    notes += ["; ".join(below_cap)] if below_cap else []
    notes += [f"mean lag in phases: {'; '.join(differences)}"] if differences else []
    return notes


def on_ledger(runs: Sequence[StoredRun]) -> list[str]:
    """Note the ledger of all runs, if not every decision was trained on exactly once; a length bias of trained rows;
    and rows outside the ledger."""
    total, rows = ledger_of(runs, "decisions"), ledger_of(runs, "sequences")
    notes, left_out = [], sum(map(_rows_outside_ledger, runs))
    if total["generated"] != total["trained"] or total["reused"]:
        parts = " + ".join(
            f"{total[fate]:,} {fate}" for fate in ("trained", "dropped", "masked", "queued", "lost") if total[fate]
        )
        reuse = f"; trained on again: {total['reused']:,}" if total["reused"] else ""
        notes.append(f"ledger: {total['generated']:,} decisions generated = {parts}{reuse}")
    if left_out:
        notes.append(
            f"not in the ledger: decisions of {left_out:,} rows that were dropped or left in the queue of a simulated "
            "pipeline"
        )
    elif rows["trained"] and total["trained"]:
        trained = total["trained"] / rows["trained"]
        generated = (total["generated"] - total["lost"]) / (rows["generated"] - rows["lost"])  # rows that end
        if abs(trained / generated - 1) >= BIAS:
            notes.append(
                f"rows trained on have {number(trained)} decisions on average, all generated rows "
                f"{number(generated)}: {trained / generated - 1:+.0%}"
            )
    return notes


def _rows_outside_ledger(run: StoredRun) -> int:
    """Count rows whose decisions a run's ledger lacks: of simulated pipelines on tokens, with ledger=trained, or in
    records from before such rows were generated."""
    if not run.record.get("pipeline_ledger") or "completions" not in run.spec:
        return 0
    rows = ledger_of([run], "sequences")
    if run.spec.get("ledger") == "trained":
        return int(rows["dropped"] + rows["queued"])
    groups = round(run.record["summary"].get("dropped_groups", 0) * run.record["phases"])
    return 0 if rows["dropped"] else groups * int(run.spec["completions"])


def on_starts(runs: Sequence[StoredRun]) -> list[str]:
    """Note environments on which runs of one seed began with policies of different scores, because two kinds of
    processor made them, as a warm start does."""
    starts: dict[str, dict[int, dict[str, float]]] = {}
    for run in runs:
        if (score := run.record["summary"].get("untrained/deterministic")) is not None:
            by_cpu = starts.setdefault(str(run.spec["env"]), {}).setdefault(run.seed, {})
            by_cpu[str(run.record["fingerprint"].get("cpu"))] = score
    notes = []
    for env, by_seed in sorted(starts.items()):
        differing = {
            f"{score:.3g}"
            for by_cpu in by_seed.values()
            for score in by_cpu.values()
            if max(by_cpu.values()) - min(by_cpu.values()) > NEAR * max(map(abs, by_cpu.values()))
        }
        if differing:
            notes.append(
                f"on {env} runs of one seed began with policies of different scores ({listing(sorted(differing), 4)}), "
                "made by different kinds of processor; differences between their rows include that"
            )
    return notes


def on_untrained(run_grid: RunGrid, score: str) -> list[str]:
    """Note if no method is above the untrained policy in any environment."""
    measurements = ((env, score_before_training(run_grid, env, score)) for env in run_grid.envs)
    starts = {env: start for env, start in measurements if start is not None}
    if not starts or len(starts) < len(run_grid.envs):
        return []
    for cell, runs in run_grid.cells.items():
        start, start_error = starts[cell.env]
        ends = np.array([final_score(run, score) for run in runs])
        records = [run.record["scores"][score] for run in runs]
        variances = [s["std"] ** 2 / max(1, len(s["returns"])) for s in records]
        spread = ends.var(ddof=1) / len(ends) if len(ends) > 1 else 0.0
        error = (max(spread, float(np.mean(variances)) / len(ends)) + start_error**2) ** 0.5
        if ends.mean() - start > SURE * error:
            return []
    level = ", ".join(f"{number(start)} on {env}" for env, (start, _) in starts.items())
    return [f"no method scores significantly above the untrained policy ({level}): none is shown to have learned"]


AXES = ("algorithm", "capacity", "env", "hyper", "seed")  # of a sweep; other settings should be equal
Missing = tuple[Cell, int, str | None]  # cell, seed, problem


def missing_runs(run_grid: RunGrid, expected: Sequence[Mapping[str, Any]]) -> list[Missing]:
    """List (cell, seed, problem) of every expected run that is missing, sorted."""
    present = {(c, r.seed) for c, rs in run_grid.cells.items() for r in rs}
    problems = {(Cell(e["label"], e["capacity"], e["env"]), int(e["seed"])): e.get("problem") for e in expected}
    absent = [(cell, seed, problem) for (cell, seed), problem in problems.items() if (cell, seed) not in present]
    return sorted(absent, key=lambda m: (m[0].capacity, m[0].label, m[0].env, m[1]))


def on_missing(missing: list[Missing], total: int, envs: list[str], ks: list[int]) -> list[str]:
    if not missing:
        return []
    names = []
    for cell, seed, problem in missing:
        place = (f" {cell.env}" if len(envs) > 1 else "") + (f" K={cell.capacity}" if len(ks) > 1 else "")
        names.append(f"{cell.label}{place} seed {seed} ({problem or 'not run'})")
    notes = [f"{len(missing)} of {plural(total, 'run')} missing: {listing(names, 12)}"]
    if lost := sum(problem == "Diverged" for _, _, problem in missing):
        losses = f"{plural(lost, 'run')} diverged and {'is' if lost == 1 else 'are'} left out"
        notes.append(f"{losses}: the scores of such a row are those of the other runs")
    return notes


def on_counts(run_grid: RunGrid, envs: list[str]) -> list[str]:
    """Note rows with unequal, few or single runs."""
    notes = []
    single, small = [], []
    for label, k in run_grid.rows:
        sizes = {env: len(rs) for env, rs in run_grid.tasks(label, k).items()}
        name = f"{label} K={k}"
        if absent := [e for e in envs if e not in sizes]:
            notes.append(f"{name} has no run on {', '.join(absent)}: aggregated over {len(sizes)} of {len(envs)} envs")
        if len(set(sizes.values())) > 1:
            counts = ", ".join(f"{e} {n}" for e, n in sizes.items())
            notes.append(
                f"{name} has unequal numbers of runs ({counts}): all are used, n is the smallest; in IQM and AUC an "
                "environment counts in proportion to its runs"
            )
        if min(sizes.values()) == 1:
            single.append(name)
        elif sum(sizes.values()) < 4:
            small.append(name)
    if single:
        notes.append(f"no interval where a task has one run only: {', '.join(single)}")
    if small:
        labels = "every row" if len(small) == len(run_grid.rows) else ", ".join(small)
        notes.append(f"fewer than 4 runs, so nothing is trimmed and the IQM is the mean; intervals are rough: {labels}")
    return notes


def on_warnings(runs: Sequence[StoredRun]) -> list[str]:
    """List the distinct warnings in the records, with labels, and K if not all have it."""
    cells_by_text: dict[str, set[tuple[str, int]]] = {}
    for run in runs:
        label, k = run.label, int(run.record["spec"]["capacity"])
        for line in run.record.get("warnings", ()):
            warning = str(line).removeprefix(f"{run.record['spec']['algorithm']}: ")
            cells_by_text.setdefault(warning, set()).add((label, k))
    ks = {int(run.record["spec"]["capacity"]) for run in runs}
    notes = []
    for warning, cells in sorted(cells_by_text.items()):
        where = {k for _, k in cells}
        place = f" (K = {', '.join(map(str, sorted(where)))})" if where != ks else ""
        notes.append(f"{', '.join(sorted({label for label, _ in cells}))}{place}: {warning}")
    return notes


def on_mixtures(runs: Sequence[StoredRun]) -> list[str]:
    """Note runs by different code, versions or hardware, or with different settings."""
    notes = []
    # a version of the harness that changes results gives runs other ids
    for words, key, skip in (("made with", "fingerprint", ("staleharness",)), ("set to", "spec", AXES)):
        names = sorted({n for r in runs for n in r.record[key]} - set(skip))
        if all(" N=" in r.label for r in runs):  # forward lag is an axis then, and in every label
            names = sorted(set(names) - {dict(r.record["task"]["axes"]).get("N") for r in runs})
        for name in names:
            counts = Counter(str(r.record[key].get(name)) for r in runs)
            if len(counts) > 1:
                shares = ", ".join(f"{v} ({plural(n, 'run')})" for v, n in sorted(counts.items()))
                notes.append(f"runs are {words} different {name}: {shares}")
    return notes
