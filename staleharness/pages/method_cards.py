"""Method cards of a report: summary, options, and the share of decisions that each mechanism touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.text import plural
from ..figures.palette import Style
from ..statistics.method_labels import value_text
from ..statistics.results import Results
from ..statistics.row_diagnostics import MECHANISMS, Share
from ..statistics.table_notes import on_warnings
from ..store.stored_run import StoredRun

FACTS = (  # key in the run's record of its method, and heading
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
    """Cards for the template, one per label, in order of name. A run without a record of its method has its settings
    and its mechanisms alone."""
    results = Results.of(runs)
    return [_card(label, results, look) for label, look in looks.items()]


def _card(label: str, results: Results, look: Style) -> dict[str, Any]:
    runs = [run for run in results.grid.runs if run.label == label]
    methods = [dict(r.record["method"]) for r in runs if "method" in r.record]
    method = methods[-1] if methods else {}
    ks = sorted({int(r.record["spec"]["capacity"]) for r in runs})
    return {
        "label": label,
        "look": look,
        "summary": method.get("summary", ""),
        "paper": method.get("paper", ""),
        "facts": [(heading, value_text(method[key])) for key, heading in FACTS if method.get(key)],
        "options": _options(runs),
        "warnings": on_warnings(runs),
        "capacities": ks,
        "runs": plural(len(runs), "run"),
        "mechanisms": _mechanisms(
            [results.diagnostics[label, k].mechanisms for k in ks], dict(method.get("touches", {}))
        ),
    }


def _options(runs: Sequence[StoredRun]) -> list[tuple[str, str]]:
    """Hyper-parameters of the runs; several values if the tasks' presets differ."""
    values: dict[str, dict[str, None]] = {}
    for run in runs:
        for key, value in dict(run.record["spec"].get("hyper", {})).items():
            values.setdefault(key, {})[value_text(value)] = None
    return [(key, " or ".join(texts)) for key, texts in sorted(values.items())]


def _mechanisms(shares: Sequence[Mapping[str, Share]], texts: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row for each mechanism that any run measured, a cell for each capacity."""
    rows = []
    for column, (name, text) in MECHANISMS.items():
        cells = [at_k.get(column) for at_k in shares]
        if any(cells):
            help_text = texts.get(column.removeprefix("algorithm/"), text) if "/" in column else text
            rows.append({"name": name, "help": help_text, "cells": [_cell(c) for c in cells]})
    return rows


def _cell(share: Share | None) -> dict[str, str]:
    return {"mean": "–", "last": ""} if share is None else {"mean": percent(share.mean), "last": percent(share.last)}


def percent(value: float) -> str:
    """Format with two significant digits: `12.3%`, `0.04%`, `0%`."""
    if value == 0:
        return "0%"
    return f"{100 * value:.1f}%" if value >= 0.001 else f"{100 * value:.1g}%"
