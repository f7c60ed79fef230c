"""The risk table: what share of its score without lag a method keeps as the data get older, in training steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..statistics.lag_curve import method_of
from ..statistics.results import Results
from ..statistics.retention import Retention, random_returns, retention
from ..statistics.table import Table
from .captions import looks_of, made, seeds
from .registry import SHEETS
from .sheet import Block, Entry, Sheet

BANDS = ((0, 1), (2, 5), (6, 20), (21, math.inf))  # of the lag in training steps, as the lesson names them
NOT_MEASURED = Entry("not measured")


class Setting(NamedTuple):
    """What makes the data of a method stale."""

    k: int
    lag: str  # the lag model


def lags_of(results: Results) -> dict[Setting, float]:
    """The mean lag of each setting, over decisions, phases and runs: in gradient steps, or phases where runs did not
    record them."""
    held: dict[Setting, list[float]] = {}
    for run in results:
        summary = run.record["summary"]
        lag = summary.get("gradient_lag_mean")
        held.setdefault(_setting(run.spec), []).append(float(summary["lag_mean"] if lag is None else lag))
    return {setting: float(np.mean(lags)) for setting, lags in held.items()}


def _setting(spec: Mapping[str, object]) -> Setting:
    return Setting(int(str(spec["capacity"])), str(spec.get("lag", "")))


def band_of(lag: float) -> tuple[float, float]:
    """The band that a mean lag falls into: it counts for the band below until it reaches the next one."""
    return [band for band in BANDS if lag >= band[0]][-1]


@SHEETS.register("risk_table")
def risk_table(results: Results, table: Table, *, base: str = "") -> Sheet:
    """Share of the score without lag that each method keeps, by band of the mean lag in training steps, in cells that
    are darker for more. `base`: the algorithm whose runs stand for no lag, where a method has none of its own."""
    found, score = results.grid, table.settings["score"]
    accuracy = table.settings["normalise"] == "raw"
    lags = lags_of(results)
    cells = {(method_of(r.label), _setting(r.spec)): r.label for r in results}
    columns: list[tuple[str, Setting | None]] = []
    for band in BANDS:
        mine = sorted((lag, setting) for setting, lag in lags.items() if band_of(lag) == band)
        columns += [(_heading(band, lag, setting, lags), setting) for lag, setting in mine] or [
            (f"{band_name(band)}: –", None)
        ]
    looks = looks_of(table)
    rows = {}
    for method in dict.fromkeys(method for method, _ in cells):
        line = []
        for _, setting in columns:
            label = cells.get((method, setting)) if setting else None
            line.append(
                NOT_MEASURED
                if setting is None or label is None
                else _entry(
                    retention(
                        found, label, setting.k, score, base=(base, setting.k) if base else None, accuracy=accuracy
                    ),
                    _fewest(results, (label, setting.k), (base, setting.k) if base else (label, 1))
                    >= table.settings.get("fewest", 0),
                )
            )
        label = next(label for (name, _), label in cells.items() if name == method)
        rows[method] = (_name(looks[label].name), line)
    last = {method: (line[-1].shade or 0.0, line[-2].shade or 0.0) for method, (_, line) in rows.items()}
    ordered = [rows[method] for method in sorted(rows, key=lambda m: last[m], reverse=True)]
    block = Block("Score kept", "algorithm", [heading for heading, _ in columns], ordered)
    return Sheet("Score kept, by lag", [_about(results, table, accuracy), made(table)], [block], table.draft)


def _about(results: Results, table: Table, accuracy: bool) -> str:
    found, score = results.grid, table.settings["score"]
    known = found.envs if accuracy else list(random_returns(found.envs, score))
    left_out = [env for env in found.envs if env not in known]
    what = "accuracy" if accuracy else "(return − random) / (return without lag − random)"
    fewest, sizes = table.settings.get("fewest", 0), [len(runs) for runs in found.cells.values()]
    ends = f"{table.settings['level']:.0%} bootstrap interval over seeds in brackets"
    if fewest > min(sizes, default=0):
        too_few = fewest > max(sizes, default=0)
        ends = "the runs are too few for an interval" if too_few else f"{ends}, of {fewest} or more"
    return (
        f"share of the score without lag that is kept, {what}, mean over {', '.join(known) or 'no environment'} and "
        f"seeds ({seeds(found)}); {ends}; columns: bands of the lesson, and the mean lag in gradient steps; {score} "
        "scores"
    ) + (f"; no random return known of {', '.join(left_out)}" if left_out else "")


def _fewest(results: Results, *rows: tuple[str, int]) -> int:
    """Runs per environment of a row of a table and of the one that it is a share of."""
    return min((len(runs) for row in rows for runs in results.grid.tasks(*row).values()), default=0)


def _heading(band: tuple[float, float], lag: float, setting: Setting, lags: Mapping[Setting, float]) -> str:
    several = len({s.k for s in lags}) > 1
    steps = round(lag, 0 if lag >= 9.95 else 1)
    return f"{band_name(band)}: {steps:g} steps" + (f" (K = {setting.k})" if several else "")


def _name(name: str) -> str:
    """Without what makes the data stale."""
    return name.partition(", lag ")[0]


def _entry(kept: Retention | None, interval: bool) -> Entry:
    if kept is None:
        return Entry("–")
    ends = ""
    if interval and kept.low is not None and kept.high is not None:
        ends = f"[{percent(kept.low)}, {percent(kept.high)}]"
    return Entry(f"{percent(kept.share)}%", ends, min(1.0, max(0.0, kept.share)))


def percent(share: float) -> int:
    return round(100 * share)


def band_name(band: Sequence[float]) -> str:
    low, high = band
    return f"{low - 1:g}+" if high == math.inf else f"{low:g}–{high:g}"
