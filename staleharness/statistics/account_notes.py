"""What a reader of the table must know of the data: lag that is not there, rows that were not trained on, scores that
nothing was learnt for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ..base.text import number
from ..store.cells import Grid
from ..store.stored_run import StoredRun
from .scores import final_score

SHORT = 0.75  # a mean lag below this share of what is promised is said
SURE = 2.0  # standard errors by which a score has to be above that of the untrained policy
Lags = dict[int, int]  # lag in phases -> how many


def on_lag(runs: Sequence[StoredRun]) -> list[str]:
    """Where a lag model kept less than it promises, and where the cap on the lag never came to bear."""
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
                f"{place}: the cap of {said['cap']} was never reached: the largest lag was {largest}"
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
    """The ledger of all runs, where not everything that was made was trained on, once."""
    total = ledger_of(runs, "decisions")
    if total["generated"] == total["trained"] and not total["reused"]:
        return []
    parts = " + ".join(
        f"{total[fate]:,} {fate}" for fate in ("trained", "dropped", "masked", "queued") if total[fate]
    )
    again = f"; trained on again: {total['reused']:,}" if total["reused"] else ""
    return [f"ledger: {total['generated']:,} decisions generated = {parts}{again}"]


def on_untrained(found: Grid, score: str) -> list[str]:
    """Said where no method scores above the untrained policy on any environment: differences are noise then."""
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
    return [f"no method beats the untrained policy ({level}): what differs here is noise"]


def untrained(found: Grid, env: str, score: str) -> tuple[float, float] | None:
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
