"""Conclusion on the lag of a log, in plain English: which methods keep enough, and what that rests on."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base.text_formatting import listing, span
from ..logs.lag_log_reader import LagLog
from ..store.record_schema import MAX_VERSIONS
from .advice_per_method import MethodAdvice

MAX_NAMES = 12  # names in a list
VERDICT_WORDS = {
    "kept": "keep enough",
    "lost": "lose more",
    "cannot tell": "cannot be judged",
    "beyond the data": "beyond the data",
}


def by_share(methods: Sequence[MethodAdvice]) -> list[MethodAdvice]:
    """Sort methods by the share that they keep, at the lag of a log or else at the largest measured one."""

    def share(method: MethodAdvice) -> tuple[bool, float, str]:
        place = method.row.get("log") or method.row["points"][-1]
        kept = place["kept"]
        return kept is None, -(kept or 0.0), method.curve.algorithm

    return sorted(methods, key=share)


def conclusion(env: str, methods: Sequence[MethodAdvice], log: LagLog, keep: float) -> list[str]:
    """Return sentences on one environment."""
    methods = by_share(methods)
    keepers, losers, unsure, beyond = (
        [m for m in methods if m.row["log"]["verdict"] == verdict] for verdict in VERDICT_WORDS
    )
    head = f"{env}, at a mean lag of {log.mean:.2f} {log.unit.replace('_', ' ')} over {log.over}: "
    if keepers:
        count = f"{len(keepers)} of {len(methods)} methods {'keeps' if len(keepers) == 1 else 'keep'}"
        head += f"{count} at least {100 * keep:g}% of the score without lag: {_names(keepers)}"
    else:
        head += f"no method is shown to keep {100 * keep:g}% of the score without lag"
    sentences = [head]
    if losers:
        sentences.append(f"{'this one loses' if len(losers) == 1 else 'these lose'} more: {_names(losers)}")
    if unsure:
        least = min(float(m.curve.lags[1]) for m in unsure)
        below = unsure[0].row["log"]["lag"] < least
        reason = f": the smallest lag that they had is {least:.1f}" if below else ""
        sentences.append(f"these runs cannot tell for {_names(unsure)}{reason}")
    if beyond:
        sentences.append(f"beyond the largest lag measured for {_names(beyond)}")
    return [*sentences, *_on_unit(methods), *_on_drift(methods, log)]


def _names(methods: Sequence[MethodAdvice]) -> str:
    shares = [(m.curve.algorithm, m.row["log"]["kept"]) for m in methods]
    return listing([name if kept is None else f"{name} {kept:.0%}" for name, kept in shares], MAX_NAMES)


def _on_unit(methods: Sequence[MethodAdvice]) -> list[str]:
    """Say what the verdicts are for other numbers of gradient steps per version."""
    methods = [m for m in methods if m.row["log"]["other_updates"]]  # others: runs that count no gradient steps
    if not methods:
        return []
    first = methods[0].row["log"]
    size = span(round(m.curve.gradient_steps_per_phase or 0) for m in methods)
    unit = _steps(first["updates"]) if first["updates"] else f"a phase of these runs, {size} gradient steps"
    others = []
    for i, other in enumerate(first["other_updates"]):
        verdicts = _count_verdicts(m.row["log"]["other_updates"][i] for m in methods)
        others.append(f"{_steps(other['updates']) if other['updates'] else 'a phase'}: {verdicts}")
    return [
        f"this counts a version of the log as {unit}; UPDATES=N counts it as N gradient steps. As "
        f"{'; as '.join(others)}"
    ]


def _steps(updates: float) -> str:
    return f"{updates:g} gradient step{'' if updates == 1 else 's'}"


def _count_verdicts(places: Iterable[Mapping[str, Any]]) -> str:
    counts = Counter(place["verdict"] for place in places)
    return ", ".join(f"{counts[verdict]} {words}" for verdict, words in VERDICT_WORDS.items() if verdict in counts)


def _on_drift(methods: Sequence[MethodAdvice], log: LagLog) -> list[str]:
    """Say what the verdicts are at the lag that a log ends with."""
    if log.drift is None:
        return []
    verdicts = _count_verdicts(m.row["log"]["last_quarter"] for m in methods)
    return [
        f"the lag drifts, from {log.drift.first:.2f} to {log.drift.last:.2f}; at that of the last quarter: {verdicts}"
    ]


def training_command(
    env: str, methods: Sequence[MethodAdvice], log: LagLog, file: str, columns: str | None, batch: float | None
) -> str:
    """Return the command that trains under the lags of a log, converted to phases as in the verdicts, except those
    that no buffer holds; a reason in its place where there is none. `columns`: those that the user named."""
    steps, updates = methods[0].curve.gradient_steps_per_phase, methods[0].row["log"]["updates"]
    per_phase = batch or 1.0  # how much the numbers in the file grow in one phase
    if log.unit == "gradient_steps":
        per_phase *= steps or 1.0
    elif updates is not None:
        per_phase *= (steps or updates) / updates
    lags = np.ceil(log.lags * (batch or 1.0) / per_phase - 1e-9)
    fits = lags < MAX_VERSIONS
    options = {"per_phase": f"{per_phase:.12g}"} if per_phase != 1.0 or log.system.unit != "versions" else {}
    options |= {"column": log.column} if columns else {}
    if set(f"{file}{options.get('column')}") & set(" ,[]") or "count=" in (columns or ""):
        return (
            "LAG=log takes no spaces, commas or brackets in a name, and no column of counts but the one beside `lag`: "
            "rename them"
        )
    if not fits.any():
        return f"no buffer holds them: the least is {lags.min():,.0f} phases, and K is at most {MAX_VERSIONS:,}"
    share = float(log.weights[~fits].sum() / log.weights.sum())
    options |= {"tail": "cut"} if share else {}
    model = f"log[{','.join(f'{name}={text}' for name, text in {'file': file, **options}.items())}]"
    lag = model if options else f"log:{file}"
    argument = shlex.quote(lag) if "'" in lag else f"'{lag}'"
    comment = f" # leaves out {100 * share:.2g}% of the lags, which no buffer holds" if share else ""
    return f"make sweep ENV={env} K={lags[fits].max() + 1:.0f} LAG={argument} ALGO=...{comment}"
