"""The report's method cards: what each method is, how it was set, and the share of decisions each mechanism touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..base.text import plural
from ..figures.palette import Style
from ..statistics.notes import on_warnings
from ..store.stored_run import StoredRun

# Columns of the metrics that are shares: what they are called, and what was done to such a decision.
MECHANISMS = {
    "clipped": ("no gradient", "had an advantage and got no gradient from the method, as measured"),
    "clipped_positive": ("… at A > 0", "of these, those with a positive advantage"),
    "clipped_negative": ("… at A < 0", "of these, those with a negative advantage"),
    "algorithm/clipped": ("clipped", "the trust region took the gradient away"),
    "algorithm/masked": ("masked", "rejected by a rule on importance ratios"),
    "algorithm/vetoed": ("vetoed", "in a completion with an impossible decision"),
    "algorithm/truncated": ("truncated", "weight cut to its cap; the gradient stays"),
    "algorithm/rho_truncated": ("truncated", "weight cut to its cap; the gradient stays"),
    "algorithm/filter_active": ("filter active", "in a minibatch in which the filter acts"),
}
FACTS = (  # key of what the run says of its method, and heading
    ("family", "family"),
    ("level", "ratio"),
    ("transform", "weight"),
    ("trust_region", "trust region"),
    ("anchor", "anchor"),
    ("proximal", "proximal policy"),
    ("passes", "extra passes"),
    ("needs", "needs"),
)


class Share(NamedTuple):
    """Share of decisions, mean over runs: over all phases, and in the last one."""

    mean: float
    last: float


def cards(runs: Iterable[StoredRun], looks: Mapping[str, Style]) -> list[dict[str, Any]]:
    """One per label, in order of name, as the template wants it. A run that says nothing of its method is shown by
    its settings and its mechanisms alone."""
    held = list(runs)
    return [_card(label, [r for r in held if r.label == label], look) for label, look in looks.items()]


def _card(label: str, runs: Sequence[StoredRun], look: Style) -> dict[str, Any]:
    said = [dict(r.record["method"]) for r in runs if "method" in r.record]
    method = said[-1] if said else {}
    ks = sorted({int(r.record["spec"]["capacity"]) for r in runs})
    return {
        "label": label,
        "index": look.index,
        "colour": look.colour,
        "summary": method.get("summary", ""),
        "paper": method.get("paper", ""),
        "facts": [(heading, _words(method[key])) for key, heading in FACTS if method.get(key)],
        "options": _options(runs),
        "warnings": on_warnings(runs),
        "capacities": ks,
        "runs": plural(len(runs), "run"),
        "mechanisms": _mechanisms(runs, ks, dict(method.get("touches", {}))),
    }


def _options(runs: Sequence[StoredRun]) -> list[tuple[str, str]]:
    """The hyper-parameters that were used; several values where the tasks' presets differ."""
    values: dict[str, dict[str, None]] = {}
    for run in runs:
        for key, value in dict(run.record["spec"].get("hyper", {})).items():
            values.setdefault(key, {})[_words(value)] = None
    return [(key, " or ".join(found)) for key, found in sorted(values.items())]


def _mechanisms(runs: Sequence[StoredRun], ks: Sequence[int], own: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row for each mechanism that any run measured, a cell for each capacity."""
    rows = []
    for column, (name, text) in MECHANISMS.items():
        cells = [share(runs, k, column) for k in ks]
        if any(cells):
            help_text = own.get(column.removeprefix("algorithm/"), text) if "/" in column else text
            rows.append({"name": name, "help": help_text, "cells": [_cell(c) for c in cells]})
    return rows


def share(runs: Sequence[StoredRun], k: int, column: str) -> Share | None:
    """What a mechanism touched at one capacity, or None where no run measured it."""
    columns = [r.column(column) for r in runs if int(r.record["spec"]["capacity"]) == k]
    there = [c[~np.isnan(c)] for c in columns if c is not None]
    if not there:
        return None
    return Share(float(np.mean([x.mean() for x in there])), float(np.mean([x[-1] for x in there])))


def _cell(found: Share | None) -> dict[str, str]:
    if found is None:
        return {"mean": "–", "last": ""}
    return {"mean": percent(found.mean), "last": percent(found.last)}


def percent(value: float) -> str:
    """Two digits that count: `12.3%`, `0.04%`, `0%`."""
    if value == 0:
        return "0%"
    return f"{100 * value:.1f}%" if value >= 0.001 else f"{100 * value:.1g}%"


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
