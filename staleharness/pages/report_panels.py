"""Panels of a report: the runs behind a row of the table, each with its settings and curves, and a card per method with
its summary, its options and the share of decisions that each of its mechanisms touched."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..base.text_formatting import duration, number, plural, word
from ..figures.palette import Style
from ..statistics.method_labels import display_label, value_text
from ..statistics.results import Results
from ..statistics.row_diagnostics import MECHANISMS, Share, in_bins
from ..statistics.scores import Array, learning_curve
from ..statistics.table import Table
from ..statistics.table_notes import on_warnings
from ..store.run_grid import cell_of, flat_settings
from ..store.stored_run import StoredRun
from .report_tables import AXES

WIDTH, TOP, BOTTOM = 180, 3, 57  # of a small curve, in its own units
POINTS = 40  # of a curve of scores; a longer one is thinned
BINS = 20  # of a curve of staleness
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


def anchors(runs: Sequence[StoredRun]) -> dict[tuple[str, int], str]:
    """Anchor of the runs of each row of the table, by (label, capacity)."""
    rows = dict.fromkeys((cell.label, cell.capacity) for cell in map(cell_of, runs))
    return {row: f"row-{i}" for i, row in enumerate(rows)}


def run_groups(
    runs: Sequence[StoredRun], table: Table, looks: Mapping[str, Style], folder: Path
) -> Iterator[dict[str, Any]]:
    """Yield the runs of each row of the table, for the template. runs: sorted by cell. folder: of the report; records
    of runs in the same folder of results are linked."""
    names, settings_of = anchors(runs), _differing_settings(runs)
    for (label, k), group in itertools.groupby(runs, lambda run: cell_of(run)[:2]):
        members = list(group)
        yield {
            "anchor": names[label, k],
            "title": f"{display_label(label)}, K = {k}",
            "count": plural(len(members), "run"),
            "look": looks.get(label),
            "runs": [_panel(run, table, settings_of[run.id], folder) for run in members],
        }


def _differing_settings(runs: Sequence[StoredRun]) -> dict[str, dict[str, str]]:
    """Settings of each run by its id: only those in which any two runs differ, without those that a heading states."""
    by_run = {
        run.id: {name: word(value) for name, value in sorted(flat_settings(run.record["spec"]).items())} for run in runs
    }
    names = {name for settings in by_run.values() for name in settings} - set(AXES)
    differing = {name for name in names if len({settings.get(name) for settings in by_run.values()}) > 1}
    return {run: {k: v for k, v in settings.items() if k in differing} for run, settings in by_run.items()}


def _panel(run: StoredRun, table: Table, settings: Mapping[str, str], folder: Path) -> dict[str, Any]:
    score, env, envs = table.settings["score"], cell_of(run).env, table.settings["envs"]
    final = run.record["scores"].get(score)
    steps, values = learning_curve(run, score)
    measure = "accuracy" if run.record["task"]["normalise"] == "raw" else "return"
    curves = [curve(steps, values, measure, table.settings["unit"])]
    if run.tv_curve is not None:
        x, y = in_bins([run.tv_curve], [env], BINS)
        curves.append(curve(x, y, "TV of the data", table.settings["unit"]))
    return {
        "id": run.id,
        "panel": envs.index(env) if env in envs else None,
        "title": f"{env}, seed {run.seed}",
        "score": "–" if final is None else number(final["mean"], 3 if measure == "accuracy" else 1),
        "seconds": duration(run.record["seconds"]["total"]),
        "settings": list(settings.items()),
        "curves": [c for c in curves if c is not None],
        # From the report to the folder of the run, where it lies in the same folder of results.
        "files": f"../../runs/{run.id}" if run.path == (folder.parents[1] / "runs" / run.id).absolute() else "",
        "has_log": (run.path / "log.txt").is_file(),  # bundles have none
    }


def curve(x: Array, y: Array, label: str, unit: str) -> dict[str, Any] | None:
    """Small curve with its first, last and extreme values in words; None without two points, or if all are zero.

    `axes` is what `hover_axes` gives of a figure: the page's script shows values of both.
    """
    finite = np.isfinite(y)
    x, y = x[finite], y[finite]
    if len(x) < 2 or not np.any(y):
        return None
    if len(x) > POINTS:
        index = np.unique(np.linspace(0, len(x) - 1, POINTS).round().astype(int))
        x, y = x[index], y[index]
    (left, right), (low, high) = (float(x[0]), float(x[-1])), (float(y.min()), float(y.max()))
    high = high if high > low else low + 1.0
    across = (x - left) / (right - left) * WIDTH
    up = BOTTOM - (y - low) / (high - low) * (BOTTOM - TOP)
    places = np.round(np.stack([across, up], axis=1), 1).tolist()
    axes = {
        "box": [0, TOP, WIDTH, BOTTOM],
        "x": {"ends": [_digits(left, 6), _digits(right, 6)], "label": unit},
        "y": {"ends": [_digits(low, 5), _digits(high, 5)], "label": label},
    }
    return {
        "label": label,
        "text": "{:g} → {:g}, {:g} to {:g}".format(*(_digits(float(v), 3) for v in (y[0], y[-1], low, high))),
        "path": "M" + "L".join(f"{a:g} {b:g}" for a, b in places),
        "axes": json.dumps(axes, ensure_ascii=False, separators=(",", ":")),
    }


def _digits(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")


def cards(runs: Iterable[StoredRun], looks: Mapping[str, Style]) -> list[dict[str, Any]]:
    """Cards for the template, one per label, in order of name. A run without a record of its method has only its
    settings and its mechanisms."""
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
            missing = {"mean": "–", "last": ""}
            row = [{"mean": percent(c.mean), "last": percent(c.last)} if c else missing for c in cells]
            rows.append({"name": name, "help": help_text, "cells": row})
    return rows


def percent(value: float) -> str:
    """Format with two significant digits: `12.3%`, `0.04%`, `0%`."""
    if value == 0:
        return "0%"
    return f"{100 * value:.1f}%" if value >= 0.001 else f"{100 * value:.1g}%"
