"""Verdict on one method of StaleBench: its rows as text, its tests and its rank in sentences."""

from __future__ import annotations

from ...base.text import number
from ...base.text_tables import fixed_width
from ..significance_and_power import ALPHA
from .benchmark_row import USER, BenchmarkRow
from .benchmark_table import BenchmarkTable
from .protocol import BASELINE

HEAD = ["K", "score", "95 %", "kept", "- PPO-clip", "95 %", "p (Holm)", "TV", "ESS", "rate", "n"]
BASELINE_NAME = "PPO-clip"


def verdict(table: BenchmarkTable, method: str, source: str) -> str:
    """Return the verdict on a method as lines that fit on a screen."""
    title, *others = remarks(table, method, source)
    rows = [row for row in table.rows if (row.method, row.source) == (method, source)]
    return "\n".join([title, "", *fixed_width(HEAD, [_cells(row) for row in rows]), "", *others])


def remarks(table: BenchmarkTable, method: str, source: str) -> list[str]:
    """Return the results on a method in sentences, the first of which names it."""
    rows = [row for row in table.rows if (row.method, row.source) == (method, source)]
    name = rows[0].label if rows else method
    lines = [f"stalebench {table.track} v{table.version} (protocol {table.digest}): {name}"]
    if table.look and source == USER:
        lines.append(f"a look and not a result: {table.look} seeds at the learning rates of {BASELINE_NAME}, no ladder")
    lines += [line for row in rows if row.score is not None for line in _sentences(table, row)]
    if any(row.between_cpus for row in rows):
        lines.append(f"these runs and those of {BASELINE_NAME} are of different kinds of CPU")
    if any(row.did_not_learn for row in rows):
        lines.append(f"did not learn: below half of {BASELINE_NAME}'s score at K={table.capacities[0]}")
    if missing := sum(row.missing for row in rows):
        lines.append(f"partial: {missing} runs of this method are missing")
    if table.runs_done < table.runs_total:
        lines.append(f"the table of all methods is partial: {table.runs_done} of {table.runs_total} runs")
    return lines


def _cells(row: BenchmarkRow) -> list[str]:
    rate = "" if row.rate is None else f"x{row.rate:.2g}"
    return [
        str(row.capacity),
        number(row.score),
        _interval(row.low, row.high),
        "" if row.retained is None else f"{row.retained:.0%}",
        "" if row.difference is None else f"{row.difference:+.2f}",
        _interval(row.difference_low, row.difference_high),
        _p(row.holm),
        number(row.tv),
        number(row.ess),
        rate,
        str(row.n),
    ]


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.2f} to {high:.2f}"


def _p(p: float | None) -> str:
    if p is None:
        return ""
    return "<.0001" if p < 1e-4 else f"{p:.4f}".lstrip("0") if p < 1 else "1"


def _sentences(table: BenchmarkTable, row: BenchmarkRow) -> list[str]:
    """Return the results of a row's tests in words."""
    k, lines = row.capacity, []
    if place := rank(table, row):
        lines.append(f"K={k}: rank {place[0]} of {place[1]} by score")
    if row.equals_baseline:
        lines.append(f"K={k}: the same results as {BASELINE_NAME}")
    elif (p := row.holm) is not None and row.method != BASELINE:  # none of a method that did not learn
        if p < ALPHA:
            side = "above" if (row.difference or 0.0) > 0 else "below"
            words = f"{side} {BASELINE_NAME} by {abs(row.difference or 0.0):.2f} (p {_p(p)})"
        else:
            words = (
                f"no significant difference from {BASELINE_NAME} (p {_p(p)}); with 80 % power {row.n} seeds detect a "
                f"difference of {row.detectable or 0:.2f}"
            )
        lines.append(f"K={k}: {words}")
    if row.loss_p is not None and row.retained is not None:
        outcome = f"p {_p(row.loss_p)}" + ("" if row.loss_p < ALPHA else ", not significant")
        change = row.retained - 1
        word = "loses" if change <= 0 else "gains"
        ends = "" if row.retained_low is None else f"; keeps {row.retained_low:.0%} to {row.retained_high:.0%}"
        lines.append(f"K={k}: {word} {abs(change):.0%} of its score without lag ({outcome}){ends}")
    return lines


def rank(table: BenchmarkTable, row: BenchmarkRow) -> tuple[int, int] | None:
    """Return (place, number of rows) by score among the rows of one capacity that learnt; None for one that did not."""
    if row.did_not_learn or row.score is None:
        return None
    scores = [r.score for r in table.rows if r.capacity == row.capacity and r.score is not None and not r.did_not_learn]
    return 1 + sum(score > row.score for score in scores), len(scores)
