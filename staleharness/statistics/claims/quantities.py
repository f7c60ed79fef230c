"""What can be asked for between two braces of a text, by name: numbers, and words about them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...base.text import plural
from ...errors import UserError
from ..aggregate import improvement
from ..bootstrap import fast_interval, mean_of_tasks
from ..lag_curve import lag_curves
from ..normalise import normaliser_of
from ..retention import retention
from ..scores import Array, learning_curve
from ..slowdown import slowdowns
from ..small_samples import MIN_RUNS
from .asked import Asked, Number
from .claim import ClaimPart
from .early_warning import count_warnings
from .evidence import Evidence, measure
from .part_tests import Term, compare_terms

REPS = 2000


def number(asked: Asked, evidence: Evidence) -> Number:
    """The number that is asked for. Raises `UserError`."""
    if asked.what in QUANTITIES:
        return QUANTITIES[asked.what](asked, evidence)
    if "over" in asked.options or "over_k" in asked.options:
        return _difference(asked, evidence)
    if asked.what == "kept":
        return _kept(asked, evidence)
    return _mean(asked, evidence)


def words(asked: Asked, evidence: Evidence) -> str:
    """The words that are asked for. Raises `UserError`, also where no run is of an algorithm that is named."""
    if asked.what != "slowdown":  # whose curves join the runs of several labels
        labels = asked.label.split("+") if asked.what == "warnings" else [asked.label]
        evidence.check(filter(None, [*labels, _label(asked.options.get("over", ""))]))
    return WORDS[asked.what](asked, evidence)


def _mean(asked: Asked, evidence: Evidence) -> Number:
    """Mean over environments of the mean over seeds."""
    of = measure(asked.what, evidence, asked.phases, asked.options.get("reduce", "mean"))
    k = evidence.capacity(asked.k)
    tasks = [
        np.array([of(run) for _, run in sorted(evidence.runs(asked.label, k, env).items())])
        for env in evidence.envs(asked.options.get("env", ""))
    ]
    if any(not len(t) for t in tasks):
        raise UserError(f"{asked.label} has no run at K={k}")
    return _of_tasks(tasks, (asked.what, asked.label, k))


def _of_tasks(tasks: list[Array], name: tuple[Any, ...]) -> Number:
    value = float(mean_of_tasks(*tasks)[0])
    if min(map(len, tasks)) >= MIN_RUNS:
        low, high = fast_interval(mean_of_tasks, tasks, name=name, reps=REPS)
        return Number(value, float(low[0]), float(high[0]))
    return Number(value, runs=tuple(map(float, tasks[0])) if len(tasks) == 1 else ())


def _row(column: str) -> Callable[[Asked, Evidence], Number]:
    """A column of the table, as its figures show it."""

    def of(asked: Asked, evidence: Evidence) -> Number:
        k = evidence.capacity(asked.k)
        rows = [r for r in evidence.table.rows if (r["algorithm"], r["capacity"]) == (asked.label, k)]
        if not rows or rows[0][column] is None:
            raise UserError(f"no row of the table is {asked.label!r} at K={k}")
        row = rows[0]
        if row["n_runs"] >= MIN_RUNS:
            return Number(row[column], row[f"{column}_low"], row[f"{column}_high"])
        what = {"iqm": "score", "auc": "area"}[column]
        runs = _mean(Asked(what, asked.label, False, asked.options), evidence).runs
        return Number(row[column], runs=runs)

    return of


def _kept(asked: Asked, evidence: Evidence) -> Number:
    k = evidence.capacity(asked.k)
    if env := asked.options.get("env"):
        evidence = Evidence(evidence.results.select(env=env), evidence.table)
    settings = evidence.table.settings
    accuracy = settings["normalise"] == "raw"
    found = retention(evidence.results.grid, asked.label, k, settings["score"], accuracy=accuracy)
    if found is None:
        raise UserError(f"{asked.label} has no share kept at K={k}")
    least = min(len(evidence.runs(asked.label, at, e)) for at in (1, k) for e in evidence.envs())
    return Number(found.share, found.low, found.high) if least >= MIN_RUNS else Number(found.share)


def _label(text: str) -> str:
    """A label in an option, where ~ stands for its space: `over=vaco~N=4`."""
    return text.replace("~", " ")


def _difference(asked: Asked, evidence: Evidence) -> Number:
    """With Student's interval, whatever the number of seeds. A ratio is that of geometric means."""
    ratio = asked.options.get("as") == "ratio"
    k, share = evidence.capacity(asked.k), asked.what == "kept"
    terms = [Term(asked.label, k, 1.0, share)]
    at = int(asked.options.get("over_k", k))
    terms.append(Term(_label(asked.options.get("over", asked.label)), at, -1.0, share))
    part = ClaimPart(
        "",
        (asked.label,),
        "more",
        asked.what,
        than=0.0,
        env=asked.options.get("env", ""),
        phases=asked.phases,
        ratio=ratio,
    )
    made = compare_terms(evidence, terms, part)
    ends = (made.value, made.low, made.high)
    return Number(*(math.exp(x) if ratio and x is not None else x for x in ends))  # type: ignore[arg-type]


def _slowdown(asked: Asked, evidence: Evidence) -> str:
    """`2.5 [1.9, > 3.1]` of one environment."""
    k, score = evidence.capacity(asked.k), evidence.table.settings["score"]
    (env,) = evidence.envs(asked.options.get("env", ""))
    curves, _ = lag_curves(evidence.results.select(env=env), score=score)
    for curve in curves:
        if curve.algorithm == asked.label and k in curve.capacities:
            level = float(asked.options.get("level", 0.5))
            (one,) = [s for s in slowdowns(curve, score, level) if s.k == k]
            value = one.factor.words
            few = asked.plain or curve.n < MIN_RUNS
            return value if few else f"{value} [{one.low.words}, {one.high.words}]"
    raise UserError(f"{asked.label} on {env} at K={k} has no slowdown")


def _seeds(asked: Asked, evidence: Evidence) -> str:
    """The seeds that a cell has, or the least number of them in any cell."""
    cells = {
        c: len(rs)
        for c, rs in evidence.results.grid.cells.items()
        if (not asked.label or c.label == asked.label) and asked.k in (None, c.capacity)
    }
    if not cells:
        raise UserError(f"no run of {asked.label or 'any algorithm'} is at K={asked.k}")
    least = min(cells.values())
    return "1 seed" if least == 1 else f"{least} seeds"


def _chance(asked: Asked, evidence: Evidence) -> Number:
    """That a run ends above one of `over`, averaged over environments."""
    k, over = evidence.capacity(asked.k), asked.options.get("over", "ppo_clip")
    rows = improvement(evidence.results.grid, over, score=evidence.table.settings["score"], reps=REPS)
    for row in rows:
        if (row["algorithm"], row["capacity"]) == (asked.label, k):
            least = min(
                len(evidence.runs(who, k, env)) or MIN_RUNS for who in (asked.label, over) for env in evidence.envs()
            )
            ends = (row["low"], row["high"]) if least >= MIN_RUNS else (None, None)
            return Number(row["probability"], *ends)
    raise UserError(f"{asked.label} is not compared with {over} at K={k}")


def _paired(asked: Asked, evidence: Evidence) -> tuple[Array, Array]:
    """Final scores of the runs of both with the same seed and environment."""
    of, k = measure("score", evidence), evidence.capacity(asked.k)
    a, b = [], []
    for env in evidence.envs(asked.options.get("env", "")):
        mine = evidence.runs(asked.label, k, env)
        other = evidence.runs(asked.options.get("over", "ppo_clip"), k, env)
        for seed in sorted(set(mine) & set(other)):
            a.append(of(mine[seed]))
            b.append(of(other[seed]))
    if not a:
        raise UserError(f"{asked.label} and {asked.options.get('over', 'ppo_clip')} have no seed in common at K={k}")
    return np.array(a), np.array(b)


def _above(asked: Asked, evidence: Evidence) -> str:
    """`15 of 15`: pairs of runs in which one ends above the other."""
    a, b = _paired(asked, evidence)
    return f"{int((a > b).sum())} of {len(a)}"


def _same(asked: Asked, evidence: Evidence) -> str:
    """`14 of 15`: pairs of runs that score the same to the last bit."""
    a, b = _paired(asked, evidence)
    return f"{int((a == b).sum())} of {len(a)}"


def _reached(asked: Asked, evidence: Evidence) -> Number:
    """Share of runs whose newest policy reached a normalised `level` in an evaluation."""
    scale, score = normaliser_of(evidence.table), evidence.table.settings["score"]
    k, level = evidence.capacity(asked.k), float(asked.options.get("level", 0.5))
    there = [
        float((scale(env, learning_curve(run, score)[1]) >= level).any())
        for env in evidence.envs()
        for run in evidence.runs(asked.label, k, env).values()
    ]
    if not there:
        raise UserError(f"{asked.label} has no run at K={k}")
    return Number(float(np.mean(there)))


def _warnings(asked: Asked, evidence: Evidence) -> str:
    """How often the effective sample size fell before the reward, and where it fell for nothing."""
    labels = asked.label.split("+") if asked.label else []
    return count_warnings([run for run in evidence.results if not labels or run.label in labels]).text


def _told(asked: Asked, evidence: Evidence) -> str:
    """`above`, `below` or `indistinguishable from`: where a difference lies, by its whole interval."""
    made = _difference(Asked(asked.options.get("of", "score"), asked.label, False, asked.options), evidence)
    if made.low is None or made.high is None:
        return "indistinguishable from"
    return "above" if made.low > 0 else "below" if made.high < 0 else "indistinguishable from"


def _environments(asked: Asked, evidence: Evidence) -> str:
    """`HalfCheetah (1 seed)`: where a method has runs, and how many."""
    k = evidence.capacity(asked.k)
    counts = {e.rpartition("-v")[0] or e: len(evidence.runs(asked.label, k, e)) for e in evidence.envs()}
    if not any(counts.values()):
        raise UserError(f"{asked.label} has no run at K={k}")
    return ", ".join(f"{env} ({plural(n, 'seed')})" for env, n in counts.items() if n)


def _runs(asked: Asked, evidence: Evidence) -> str:
    count = sum(1 for run in evidence.results if not asked.label or run.label == asked.label)
    return "1 run" if count == 1 else f"{count} runs"


QUANTITIES: Mapping[str, Callable[[Asked, Evidence], Number]] = {
    "iqm": _row("iqm"),
    "auc": _row("auc"),
    "chance": _chance,
    "reached": _reached,
}
WORDS: Mapping[str, Callable[[Asked, Evidence], str]] = {
    "slowdown": _slowdown,
    "seeds": _seeds,
    "runs": _runs,
    "above": _above,
    "same": _same,
    "warnings": _warnings,
    "told": _told,
    "environments": _environments,
}
