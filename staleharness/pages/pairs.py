"""The report's table of pairs: one square per capacity, as HTML, and the same as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base.text import number, rows_to_csv
from ..figures.palette import Style

COLUMNS = ("capacity", "a", "b", "n_envs", "probability", "low", "high", "effect")
MOST = 12  # methods in a square that can still be read


def squares(rows: Sequence[Mapping[str, Any]], looks: Mapping[str, Style]) -> list[dict[str, Any]]:
    """Per capacity with two methods or more: its methods, and a line of cells for each of them."""
    made = []
    for k in sorted({row["capacity"] for row in rows}):
        here = {(row["a"], row["b"]): row for row in rows if row["capacity"] == k}
        labels = [label for label in looks if any(label in pair for pair in here)]
        if len(labels) <= MOST:
            lines = [
                {"label": a, "colour": looks[a].colour, "cells": [_cell(here.get((a, b))) for b in labels]}
                for a in labels
            ]
            made.append({"capacity": k, "labels": labels, "lines": lines})
    return made


def _cell(row: Mapping[str, Any] | None) -> dict[str, str]:
    if row is None:
        return {"text": "", "more": "", "shade": "transparent"}
    p, effect = row["probability"], row["effect"]
    interval = "" if row["low"] is None else f"[{number(row['low'])}, {number(row['high'])}]"
    size = "" if effect is None else f"g {effect:+.1f}"
    tone = "0,114,178" if p > 0.5 else "213,94,0"
    return {"text": number(p), "more": " ".join([interval, size]).strip(), "shade": f"rgba({tone},{abs(p - 0.5):.2f})"}


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """All pairs, full precision."""
    return rows_to_csv(rows, COLUMNS)
