"""Quantities for the braces of a text, by name: numbers with their intervals, and words about them.

Besides those registered here, each measure (`study_evidence.py`) and each column of the metrics is a quantity.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...base.text_formatting import plural
from ...errors import UserError
from ...study import without_version
from ..aggregate import MIN_RUNS
from ..bootstrap import REPS, fast_interval, mean_of_tasks
from ..lag_curve import lag_curves
from ..retained_share import retention
from ..scores import Array, learning_curve, normaliser_of
from ..significance_and_power import improvement_over
from ..slowdown import slowdowns
from ..t_tests_and_intervals import Contrast
from .claim_schema import ClaimPart, NumberQuery
from .early_warning import METRIC, count_warnings
from .part_tests import Term, compare_terms
from .study_evidence import MEASURES, Evidence, measure

BASELINE = "ppo_clip"  # where a query does not say over
SIDES = ("above", "below", "not significantly different from")  # of 0, as a text tells them
Evaluation = Callable[[NumberQuery, Evidence], str]
FORMAT_OPTIONS = ("digits", "as")  # of every quantity that is a number
MEASURE_OPTIONS = ("K", "env", "over", "over_k", "seeds")
COLUMN_OPTIONS = (*MEASURE_OPTIONS, "phases", "reduce")


@dataclass(frozen=True)
class Quantity:
    """Quantity with a rule of its own."""

    evaluate: Evaluation
    options: Sequence[str] = ()
    is_number: bool = False  # else it is words


def quantity_text(query: NumberQuery, evidence: Evidence) -> str:
    """Evaluate a query on the runs of a study. Raises `UserError`, also for an option that the quantity does not
    take."""
    quantity = QUANTITIES.get(query.quantity)
    is_number = quantity is None or quantity.is_number
    options = quantity.options if quantity else MEASURE_OPTIONS if query.quantity in MEASURES else COLUMN_OPTIONS
    formats = FORMAT_OPTIONS if is_number else ()
    if wrong := [name for name in query.options if name not in (*options, *formats, "study")]:
        raise UserError(f"{query.quantity} has no option {wrong[0]}; it has {', '.join(options) or 'none'}")
    if quantity and is_number and query.options.get("as") == "ratio":
        raise UserError(f"{query.quantity} has no as=ratio; give a measure, such as score")
    if quantity:
        if not is_number and query.quantity != "slowdown":  # its curves join the runs of several labels
            labels = query.label.split("+") if query.quantity == "warnings" else [query.label]
            evidence.check(filter(None, [*labels, query.over]))
        return quantity.evaluate(query, evidence)
    if "over" in query.options or "over_k" in query.options:
        return _difference_text(query, evidence)
    return (_retention if query.quantity == "kept" else _mean)(query, evidence)


def _mean(query: NumberQuery, evidence: Evidence) -> str:
    """Mean over environments of the mean over seeds."""
    k, tasks = evidence.capacity(query.k), _values(query, evidence)
    value = float(mean_of_tasks(*tasks)[0])
    if min(map(len, tasks)) >= MIN_RUNS:
        low, high = fast_interval(mean_of_tasks, tasks, name=(query.quantity, query.label, k), reps=REPS)
        return query.text(value, float(low[0]), float(high[0]))
    return query.text(value, runs=tasks[0].tolist() if len(tasks) == 1 else ())


def _values(query: NumberQuery, evidence: Evidence) -> list[Array]:
    """Values of the runs of a label, sorted by seed: [runs] per environment. Raises `UserError` where there are
    none."""
    value_of = measure(query.quantity, evidence, query.phases, query.options.get("reduce", "mean"))
    k = evidence.capacity(query.k)
    runs = [evidence.runs(query.label, k, env) for env in evidence.envs(query.env)]
    tasks = [np.array([value_of(run) for _, run in sorted(of_env.items())]) for of_env in runs]
    if any(not len(t) for t in tasks):
        raise UserError(f"{query.label} has no run at K={k}")
    return tasks


def _table_column(column: str, score: str) -> Evaluation:
    """Make the quantity of a column of the table; `score` is the measure that it aggregates."""

    def of(query: NumberQuery, evidence: Evidence) -> str:
        k = evidence.capacity(query.k)
        rows = [r for r in evidence.table.rows if (r["algorithm"], r["capacity"]) == (query.label, k)]
        if not rows or rows[0][column] is None:
            raise UserError(f"no row of the table is {query.label!r} at K={k}")
        (row,) = rows
        if row["n_runs"] >= MIN_RUNS:
            return query.text(row[column], row[f"{column}_low"], row[f"{column}_high"])
        tasks = _values(replace(query, quantity=score), evidence)
        small = min(map(len, tasks)) < MIN_RUNS and len(tasks) == 1
        return query.text(row[column], runs=tasks[0].tolist() if small else ())

    return of


def _retention(query: NumberQuery, evidence: Evidence) -> str:
    """Share of the score at K = 1 that is retained."""
    k = evidence.capacity(query.k)
    if query.env:
        evidence = Evidence(evidence.results.select(env=query.env), evidence.table)
    settings = evidence.table.settings
    accuracy = evidence.table.accuracy
    share = retention(evidence.results.grid, query.label, k, settings["score"], accuracy=accuracy)
    if share is None:
        raise UserError(f"{query.label} has no share kept at K={k}")
    least = min(len(evidence.runs(query.label, at, e)) for at in (1, k) for e in evidence.envs())
    return query.text(*share) if least >= MIN_RUNS else query.text(share.share)


def _difference(query: NumberQuery, evidence: Evidence) -> Contrast:
    """Difference from `over`, or from the same label at `over_k`; a ratio is in logarithms."""
    k = evidence.capacity(query.k)
    other_k = int(query.options.get("over_k", k))
    terms = [Term(query.label, k, 1.0), Term(query.over or query.label, other_k, -1.0)]
    ratio, by_seed = query.options.get("as") == "ratio", query.options.get("seeds") == "paired"
    part = ClaimPart("", (query.label,), what=query.quantity, than=0.0, env=query.env, phases=query.phases)
    reduce: Any = query.options.get("reduce", "mean")
    return compare_terms(evidence, terms, replace(part, ratio=ratio, by_seed=by_seed, reduce=reduce))


def _difference_text(query: NumberQuery, evidence: Evidence) -> str:
    """Difference with Student's interval, whatever the number of seeds. A ratio is that of geometric means."""
    contrast = _difference(query, evidence)
    ends = (contrast.value, contrast.low, contrast.high)
    ratio = query.options.get("as") == "ratio"
    return query.text(*(math.exp(x) if ratio and x is not None else x for x in ends))  # type: ignore[arg-type]


def told_difference(query: NumberQuery, evidence: Evidence) -> Contrast:
    """Difference whose side of 0 a text tells: of the final score, or of `of=`."""
    return _difference(replace(query, quantity=query.options.get("of", "score")), evidence)


def _direction(query: NumberQuery, evidence: Evidence) -> str:
    """Side of 0 on which a test puts a difference: `above`, `below` or `not significantly different from`."""
    difference = told_difference(query, evidence)
    p = difference.p_beyond("more")
    if p is None or p > query.alpha:
        return SIDES[2]
    return SIDES[0] if difference.value > 0 else SIDES[1]


def _slowdown(query: NumberQuery, evidence: Evidence) -> str:
    """Slowdown in one environment: `2.5 [1.9, > 3.1]`."""
    k, score = evidence.capacity(query.k), evidence.table.settings["score"]
    (env,) = evidence.envs(query.env)
    curves, _ = lag_curves(evidence.results.select(env=env), score=score)
    for curve in curves:
        if curve.algorithm == query.label and k in curve.capacities:
            level = float(query.options.get("level", 0.5))
            (result,) = [s for s in slowdowns(curve, score, level) if s.k == k]
            interval = "" if query.plain or curve.n < MIN_RUNS else f" [{result.low.words}, {result.high.words}]"
            return result.factor.words + interval
    raise UserError(f"{query.label} on {env} at K={k} has no slowdown")


def _seeds(query: NumberQuery, evidence: Evidence) -> str:
    """Number of seeds of a cell, or the smallest among several cells."""
    sizes = [
        len(runs)
        for cell, runs in evidence.results.grid.cells.items()
        if query.label in ("", cell.label) and query.k in (None, cell.capacity)
    ]
    if not sizes:
        raise UserError(f"no run of {query.label or 'any algorithm'} is at K={query.k}")
    return plural(min(sizes), "seed")


def _chance(query: NumberQuery, evidence: Evidence) -> str:
    """Probability that a run ends above one of `over`, averaged over environments."""
    k, over = evidence.capacity(query.k), query.over or BASELINE
    rows = improvement_over(evidence.results.grid, over, evidence.table.settings["score"])
    for row in rows:
        if (row["algorithm"], row["capacity"]) == (query.label, k):
            sizes = (len(evidence.runs(label, k, env)) for label in (query.label, over) for env in evidence.envs())
            ends = (row["low"], row["high"]) if min(n or MIN_RUNS for n in sizes) >= MIN_RUNS else ()
            return query.text(row["probability"], *ends)
    raise UserError(f"{query.label} is not compared with {over} at K={k}")


def _pair_count(relation: Callable[[float, float], bool]) -> Evaluation:
    """Make the quantity of pairs of runs, same seed and environment, whose final scores have a relation: `15 of 15`."""

    def of(query: NumberQuery, evidence: Evidence) -> str:
        score, k, over = measure("score", evidence), evidence.capacity(query.k), query.over or BASELINE
        pairs = []
        for env in evidence.envs(query.env):
            runs, others = evidence.runs(query.label, k, env), evidence.runs(over, k, env)
            pairs += [(score(runs[seed]), score(others[seed])) for seed in runs.keys() & others.keys()]
        if not pairs:
            raise UserError(f"{query.label} and {over} have no seed in common at K={k}")
        return f"{sum(relation(a, b) for a, b in pairs)} of {len(pairs)}"

    return of


def _share_reaching(query: NumberQuery, evidence: Evidence) -> str:
    """Share of runs whose newest policy reached a normalised `level` in an evaluation."""
    scale, score = normaliser_of(evidence.table), evidence.table.settings["score"]
    k, level = evidence.capacity(query.k), float(query.options.get("level", 0.5))
    reaching = [
        float((scale(env, learning_curve(run, score)[1]) >= level).any())
        for env in evidence.envs()
        for run in evidence.runs(query.label, k, env).values()
    ]
    if not reaching:
        raise UserError(f"{query.label} has no run at K={k}")
    return query.text(float(np.mean(reaching)))


def _warnings(query: NumberQuery, evidence: Evidence) -> str:
    """Hits and false alarms of the effective sample size as a warning of a fall of the reward."""
    labels = query.label.split("+") if query.label else []
    runs = [run for run in evidence.results if not labels or run.label in labels]
    return count_warnings(runs, query.options.get("of", METRIC)).text


def _environments(query: NumberQuery, evidence: Evidence) -> str:
    """Environments in which a method has runs, and how many: `HalfCheetah (1 seed)`."""
    k = evidence.capacity(query.k)
    counts = {without_version(e): len(evidence.runs(query.label, k, e)) for e in evidence.envs()}
    if not any(counts.values()):
        raise UserError(f"{query.label} has no run at K={k}")
    return ", ".join(f"{env} ({plural(n, 'seed')})" for env, n in counts.items() if n)


QUANTITIES: Mapping[str, Quantity] = {
    "iqm": Quantity(_table_column("iqm", "score"), ("K",), is_number=True),
    "auc": Quantity(_table_column("auc", "area"), ("K",), is_number=True),
    "chance": Quantity(_chance, ("K", "over"), is_number=True),
    "reached": Quantity(_share_reaching, ("K", "level"), is_number=True),
    "slowdown": Quantity(_slowdown, ("K", "env", "level")),
    "seeds": Quantity(_seeds, ("K",)),
    "runs": Quantity(lambda query, of: plural(sum(query.label in ("", run.label) for run in of.results), "run")),
    "above": Quantity(_pair_count(operator.gt), ("K", "env", "over")),
    "same": Quantity(_pair_count(operator.eq), ("K", "env", "over")),
    "warnings": Quantity(_warnings, ("of",)),
    "told": Quantity(_direction, (*COLUMN_OPTIONS, "of", "as")),
    "environments": Quantity(_environments, ("K",)),
}
