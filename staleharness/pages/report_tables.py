"""Contents of the report's template: rows of text and numbers, from runs, table, pairs and failures."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..base.text_formatting import duration, number, word
from ..figures.palette import Style
from ..statistics.scores import SCORES
from ..statistics.table import AGGREGATES, Table, count, distinct_aggregates, is_published, raw_digits, retained_text
from ..store.run_grid import cell_of
from ..store.stored_run import StoredRun

COLUMNS = (  # key of a row, heading, what it is
    ("algorithm", "algorithm", ""),
    ("capacity", "K", "capacity of the policy buffer"),
    ("iqm", "IQM", "interquartile mean of normalised scores, more is better"),
    ("retained", "retained", "share of the score at K = 1 that is retained"),
    ("median", "median", "median over environments of mean normalised scores"),
    ("mean", "mean", "mean over environments of mean normalised scores"),
    ("optimality_gap", "gap", "optimality gap, less is better"),
    ("auc", "AUC", "area under the normalised learning curve"),
    ("raw_mean", "return", "mean raw return"),
    ("lag_mean", "lag", "mean realised lag in phases"),
    ("tv", "TV", "total variation between the newest policy and those that acted"),
    ("ess", "ESS", "effective sample size as a share of the data"),
    ("clipped", "clipped", "share of decisions whose gradient the method removed"),
    ("n_runs", "n", "runs × environments"),
    ("seconds", "time", "mean wall-clock time of a run"),
)
RUN_COLUMNS = (
    "algorithm",
    "environment",
    "K",
    "seed",
    "sampled",
    "deterministic",
    "steps",
    "evaluation steps",
    "time",
    "evaluation time",
    "status",
    "run",
)
NUMBERS = frozenset(
    {"K", "seed", "sampled", "deterministic", "steps", "evaluation steps", "time", "evaluation time"}
)  # of the list of runs
AXES = ("algorithm", "capacity", "env", "seed")  # settings that a sweep varies, beside hyper-parameters


def columns_of(table: Table) -> list[tuple[str, str, str]]:
    """Columns of the table of scores, without retained shares if there are none, and without an aggregate that equals
    an earlier one in every row."""
    left_out = set() if any(row.get("retained") is not None for row in table.rows) else {"retained"}
    left_out |= {key for key in AGGREGATES if key not in distinct_aggregates(table)}
    return [column for column in COLUMNS if column[0] not in left_out]


def score_row(
    row: Mapping[str, Any], table: Table, looks: Mapping[str, Style], anchors: Mapping[tuple[str, int], str]
) -> dict[str, Any]:
    look, cells = looks[row["algorithm"]], []
    retained, _, ends = retained_text(row).partition(" ")
    texts = {
        "algorithm": look.name,
        "capacity": f"{row['capacity']}{'*' if is_published(row, table) else ''}",
        "retained": retained,
        "raw_mean": number(row["raw_mean"], raw_digits(table)),
        "tv": number(row["tv"], 3),
        "clipped": "–" if row["clipped"] is None else f"{100 * row['clipped']:.1f}%",
        "n_runs": count(row),
        "seconds": duration(row["seconds"]),
    }
    for key, _, _ in columns_of(table):
        value, interval = row[key], ends if key == "retained" else ""
        if f"{key}_low" in row and value is not None and key != "retained":
            low, high = row[f"{key}_low"], row[f"{key}_high"]
            interval = "[–]" if low is None else f"[{number(low)}, {number(high)}]"
        text = texts[key] if key in texts else number(value)
        bar = _bar(row, table) if key == "iqm" and value is not None else None
        cells.append({"value": "" if value is None else value, "text": text, "interval": interval, "bar": bar})
    return {"look": look, "anchor": anchors.get((row["algorithm"], row["capacity"]), ""), "cells": cells}


def _bar(row: Mapping[str, Any], table: Table) -> dict[str, float | None]:
    """Places of the IQM and its interval between the least and greatest end of all rows, in percent."""
    ends = [r[k] for r in table.rows for k in ("iqm", "iqm_low", "iqm_high") if r[k] is not None]
    low, span = min(ends), (max(ends) - min(ends)) or 1.0

    def at(value: float) -> float:
        return float(round(100 * (value - low) / span, 2))

    bar: dict[str, float | None] = {"at": at(row["iqm"]), "low": None, "width": None}
    if row["iqm_low"] is not None:
        bar |= {"low": at(row["iqm_low"]), "width": round(at(row["iqm_high"]) - at(row["iqm_low"]), 2)}
    return bar


def run_records(
    runs: Iterable[StoredRun], failures: Iterable[Mapping[str, Any]], table: Table | None = None
) -> Iterator[dict[str, Any]]:
    """Yield one flat record per run and per failure, for the list of runs and `runs.csv`."""
    published = table.published if table else []
    for run in runs:
        r, cell = run.record, cell_of(run)
        yield {
            "algorithm": cell.label,
            "environment": cell.env,
            "K": cell.capacity,
            "seed": r["spec"]["seed"],
            **_scores(r["scores"]),
            "steps": r["steps"],
            "evaluation steps": r["evaluation_steps"],
            "time": r["seconds"]["total"],
            "evaluation time": r["seconds"]["evaluate"],
            "status": "published" if cell.capacity == 1 and cell.label in published else "done",
            "run": run.id,
        }
    for f in failures:
        yield {
            "algorithm": f.get("label", ""),
            "environment": f.get("env", ""),
            "K": f.get("capacity"),
            "seed": f.get("seed"),
            "status": f.get("class", "failed"),
            "run": f.get("id", ""),
        }


def _scores(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Mean and deviation of both evaluation modes; for answers, accuracy with its Wilson interval."""
    out: dict[str, Any] = {}
    for name, score in ((name, scores[name]) for name in SCORES if name in scores):
        out |= {name: score["mean"], f"{name}_std": score["std"]}
        if "wilson" in score:
            low, high = score["wilson"]
            n = len(score["returns"])
            counts = f"n={n}, {score['unparsed']} unparsed, {score['truncated']} truncated"
            out["accuracy"] = f"{score['mean']:.3f} [{low:.3f}, {high:.3f}] ({counts})"
    return out


def run_row(
    record: Mapping[str, Any], looks: Mapping[str, Style], envs: Sequence[str], digits: int = 1
) -> dict[str, Any]:
    """Return the entries of a run or a failure in the list of runs; digits: of a score."""
    env, cells = record["environment"], []
    for name in RUN_COLUMNS:
        value = record.get(name)
        text = "–" if value is None else str(value)
        if name == "deterministic" and "accuracy" in record:
            text = record["accuracy"]
        elif name in ("sampled", "deterministic") and value is not None:
            text = f"{value:.{digits}f} ± {record[f'{name}_std']:.{digits}f}"
        elif name in ("time", "evaluation time"):
            text = duration(value)
        elif name in ("steps", "evaluation steps") and value is not None:
            text = f"{value:,}"
        cells.append({"value": "" if value is None else value, "text": text, "number": name in NUMBERS})
    return {
        "cells": cells,
        "failed": record["status"] not in ("done", "published"),
        "look": looks.get(record["algorithm"]),
        "panel": envs.index(env) if env in envs else None,
    }


def failure(record: Mapping[str, Any]) -> dict[str, Any]:
    words = [str(record["label"])] if record.get("label") else []
    words += [
        f"{prefix}{record[key]}"
        for key, prefix in (("env", "on "), ("capacity", "K="), ("seed", "seed "))
        if key in record
    ]
    return {
        "where": " ".join(words) or "a run",
        "kind": record.get("class", "failed"),
        "message": clean(str(record.get("message", ""))),
        "phase": record.get("phase"),
        "log": clean(str(record.get("log_tail", ""))),
    }


def clean(text: str) -> str:
    """Return a log as a terminal would show it: without escapes, overwritten lines and control characters."""
    text = re.sub(r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]", "", text)
    lines = (line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return "\n".join("".join(c for c in line if c == "\t" or c.isprintable()) for line in lines)


def entries(records: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, int]]]]:
    """(name, [(value, number of runs)]) of every name in any record: one value if all agree."""
    counts: dict[str, Counter[str]] = {}
    for record in records:
        for name, value in record.items():
            counts.setdefault(name, Counter())[word(value)] += 1
    return [(name, sorted(counts[name].items(), key=_natural)) for name in sorted(counts)]


def _natural(item: tuple[str, int]) -> tuple[float, str]:
    """Sort key: numbers in their order, before words."""
    try:
        return float(item[0]), ""
    except ValueError:
        return math.inf, item[0]


PAIR_COLUMNS = ("capacity", "a", "b", "n_envs", "probability", "low", "high", "effect")
MAX_METHODS = 12  # methods in a square that can still be read


def squares(
    rows: Sequence[Mapping[str, Any]], looks: Mapping[str, Style], anchors: Mapping[tuple[str, int], str]
) -> list[dict[str, Any]]:
    """Table of pairs per capacity with two methods or more: its methods, and a line (look, anchor, cells) for each of
    them; no lines for more than `MAX_METHODS`. `anchors`: of the runs of each (method, capacity)."""
    tables = []
    for k in sorted({row["capacity"] for row in rows}):
        pairs = {(row["a"], row["b"]): row for row in rows if row["capacity"] == k}
        labels = [label for label in looks if any(label in pair for pair in pairs)]
        rows_of_table = labels if len(labels) <= MAX_METHODS else []
        lines = [(looks[a], anchors.get((a, k), ""), [_cell(pairs.get((a, b))) for b in labels]) for a in rows_of_table]
        tables.append({"capacity": k, "labels": [looks[label].name for label in labels], "lines": lines})
    return tables


def _cell(row: Mapping[str, Any] | None) -> dict[str, str]:
    if row is None:
        return {"text": "", "more": "", "shade": "transparent"}
    p, effect = row["probability"], row["effect"]
    interval = "" if row["low"] is None else f"[{number(row['low'])}, {number(row['high'])}]"
    size = "" if effect is None else f"g {round(effect, 1) + 0.0:+.1f}"
    tone = "0,114,178" if p > 0.5 else "213,94,0"
    return {"text": number(p), "more": " ".join([interval, size]).strip(), "shade": f"rgba({tone},{abs(p - 0.5):.2f})"}
