"""The report's method cards: what each method is, how it was set, and the share of decisions each mechanism touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.text import plural
from ..figures.palette import Style
from ..statistics.diagnostics import MECHANISMS, Share
from ..statistics.results import Results
from ..statistics.table_notes import on_warnings
from ..store.stored_run import StoredRun

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


def cards(runs: Iterable[StoredRun], looks: Mapping[str, Style]) -> list[dict[str, Any]]:
    """One per label, in order of name, as the template wants it. A run that says nothing of its method is shown by
    its settings and its mechanisms alone."""
    results = Results.of(runs)
    return [_card(label, results, look) for label, look in looks.items()]


def _card(label: str, results: Results, look: Style) -> dict[str, Any]:
    runs = [run for run in results.grid.runs if run.label == label]
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
        "mechanisms": _mechanisms(
            [results.diagnostics[label, k].mechanisms for k in ks], dict(method.get("touches", {}))
        ),
    }


def _options(runs: Sequence[StoredRun]) -> list[tuple[str, str]]:
    """The hyper-parameters that were used; several values where the tasks' presets differ."""
    values: dict[str, dict[str, None]] = {}
    for run in runs:
        for key, value in dict(run.record["spec"].get("hyper", {})).items():
            values.setdefault(key, {})[_words(value)] = None
    return [(key, " or ".join(found)) for key, found in sorted(values.items())]


def _mechanisms(touched: Sequence[Mapping[str, Share]], own: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row for each mechanism that any run measured, a cell for each capacity."""
    rows = []
    for column, (name, text) in MECHANISMS.items():
        cells = [at_k.get(column) for at_k in touched]
        if any(cells):
            help_text = own.get(column.removeprefix("algorithm/"), text) if "/" in column else text
            rows.append({"name": name, "help": help_text, "cells": [_cell(c) for c in cells]})
    return rows


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
