"""What a reader of the table must know of the data: lag that is not there, rows that were not trained on, scores that
nothing was learnt for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..base.text import number, plural
from ..store.run_grid import RunGrid
from ..store.stored_run import StoredRun
from .scores import final_score

SHORT = 0.75  # a mean lag below this share of what is promised is said
SURE = 2.0  # standard errors by which a score has to be above that of the untrained policy
BIAS = 0.01  # by which rows trained on are longer or shorter than all, from where it is said
Lags = dict[int, int]  # lag in phases -> how many


def on_lag(runs: Sequence[StoredRun]) -> list[str]:
    """Where a lag model kept less than it promises, and where no data were as old as it allows."""
    short, unreached, apart = [], [], []
    groups: dict[tuple[int, str], list[StoredRun]] = {}
    for run in runs:
        if run.record.get("promise") and any(lags_of([run], "trained").values()):
            groups.setdefault((int(run.spec["capacity"]), str(run.spec["lag"])), []).append(run)
    several = len({lag for _, lag in groups}) > 1
    for (k, lag), members in sorted(groups.items()):
        place = f"K = {k}" + (f", LAG={lag}" if several else "")
        said, trained = members[0].record["promise"], lags_of(members, "trained")
        mean, realised, largest = mean_of(trained), mean_of(lags_of(members, "realised")), max(trained)
        if said["mean"] is not None and mean < SHORT * said["mean"]:
            phases = max(int(run.record["phases"]) for run in members)
            short.append(
                f"{place} trained at a mean lag of {number(mean)} phases, not {number(said['mean'])} ({phases} phases)"
            )
        if largest < said["cap"]:
            unreached.append(
                f"{place}: data may be {plural(said['cap'], 'phase')} old, and the oldest trained on were {largest}"
            )
        if abs(mean - realised) > 0.005:
            apart.append(f"{place}: {number(realised)} as made, {number(mean)} as trained on")
    notes = []
    if short:
        lag = "the lag model" if several else f"LAG={next(iter(groups))[1]}"
        notes.append(f"less lag than {lag} has with a full buffer: {'; '.join(short)}")
    notes += ["; ".join(unreached)] if unreached else []
    notes += [f"mean lag in phases: {'; '.join(apart)}"] if apart else []
    return notes


def on_ledger(runs: Sequence[StoredRun]) -> list[str]:
    """The ledger of all runs, where not everything that was made was trained on, once; how long rows were that were
    trained on, where the others were not; and what it leaves out."""
    total, rows = ledger_of(runs, "decisions"), ledger_of(runs, "sequences")
    notes, left_out = [], sum(map(_uncounted, runs))
    if total["generated"] != total["trained"] or total["reused"]:
        parts = " + ".join(
            f"{total[fate]:,} {fate}" for fate in ("trained", "dropped", "masked", "queued", "lost") if total[fate]
        )
        again = f"; trained on again: {total['reused']:,}" if total["reused"] else ""
        notes.append(f"ledger: {total['generated']:,} decisions generated = {parts}{again}")
    if left_out:
        notes.append(
            f"not in the ledger: decisions of {left_out:,} rows that were dropped or left in the queue of a simulated "
            "pipeline"
        )
    elif rows["trained"] and total["trained"]:
        trained, made = total["trained"] / rows["trained"], total["generated"] / rows["generated"]
        if abs(trained / made - 1) >= BIAS:
            notes.append(
                f"rows trained on have {number(trained)} decisions in the mean, all that were made {number(made)}: "
                f"{trained / made - 1:+.0%}"
            )
    return notes


def _uncounted(run: StoredRun) -> int:
    """Rows whose decisions a run's ledger lacks: of simulated pipelines on tokens, with ledger=trained, or before such
    rows were made."""
    if not run.record.get("pipeline_ledger") or "completions" not in run.spec:
        return 0
    rows = run.record.get("ledger", {}).get("sequences", {})
    if run.spec.get("ledger") == "trained":
        return int(rows["dropped"] + rows["queued"])
    groups = round(run.record["summary"].get("dropped_groups", 0) * run.record["phases"])
    return 0 if rows.get("dropped") else groups * int(run.spec["completions"])


def on_untrained(found: RunGrid, score: str) -> list[str]:
    """Said where no method is told from the untrained policy on any environment: differences may be noise then."""
    known = {env: untrained(found, env, score) for env in found.envs}
    if not known or any(value is None for value in known.values()):
        return []
    for cell, runs in found.cells.items():
        start = known[cell.env]
        assert start is not None
        ends = np.array([final_score(run, score) for run in runs])
        episodes = [run.record["scores"][score] for run in runs]
        squared = [s["std"] ** 2 / max(1, len(s["returns"])) for s in episodes]
        spread = ends.var(ddof=1) / len(ends) if len(ends) > 1 else 0.0
        error = (max(spread, float(np.mean(squared)) / len(ends)) + start[1] ** 2) ** 0.5
        if ends.mean() - start[0] > SURE * error:
            return []
    level = ", ".join(f"{number(v[0])} on {env}" for env, v in known.items() if v)
    return [f"no method can be told from the untrained policy ({level}): what differs here may be noise"]


def untrained(found: RunGrid, env: str, score: str) -> tuple[float, float] | None:
    """(score, standard error) of the policy before training: mean over the runs of an environment that know it."""
    said = [
        (summary[f"untrained/{score}"], summary[f"untrained/{score}_error"])
        for cell, runs in found.cells.items()
        if cell.env == env
        for summary in (run.record["summary"] for run in runs)
        if f"untrained/{score}" in summary
    ]
    if not said:
        return None
    means, errors = np.array(said).T
    return float(means.mean()), float(errors.mean())


def lags_of(runs: Sequence[StoredRun], kind: str) -> Lags:
    """Decisions (rows, where `assigned`) by lag, of the runs that have accounts; lags that did not come up left out."""
    total: Counter[int] = Counter()
    for run in runs:
        for lag, count in run.record.get("lags", {}).get(kind, {}).items():
            total[int(lag)] += int(count)
    return {lag: count for lag, count in sorted(total.items()) if count}


def ledger_of(runs: Sequence[StoredRun], unit: str) -> Counter[str]:
    """The ledgers of the runs that have one, added up; `unit`: sequences or decisions."""
    total: Counter[str] = Counter()
    for run in runs:
        total.update(run.record.get("ledger", {}).get(unit, {}))
    return total


def mean_of(lags: Lags) -> float:
    return sum(lag * count for lag, count in lags.items()) / max(1, sum(lags.values()))
