"""Table of scores by method and mismatch model, per capacity."""

from __future__ import annotations

from typing import Any

from ..statistics.labels import display_label, option_text, without_option
from ..statistics.results import Results
from ..statistics.table import Table
from .captions import below, run_facts, scale, size
from .registry import SHEETS, Section
from .result_tables import Block, Sheet, SheetCell

NONE = "none"  # mismatch model of a sampler that is the trainer


def _models(results: Results) -> dict[str, str]:
    """Map each label to its mismatch model."""
    return {run.label: str(run.spec.get("mismatch", NONE)) for run in results}


def _fits(results: Results) -> bool:
    return len(set(_models(results).values())) > 1


@SHEETS.register(
    "score_by_mismatch",
    Section(
        61,
        "Score by mismatch model",
        "Normalised IQM of each method on data that a copy of its policy sampled. Darker is higher.",
        _fits,
    ),
)
def score_by_mismatch(results: Results, table: Table) -> Sheet:
    """IQM with its interval over method and mismatch model, one block per environment and capacity."""
    model_of, names = _models(results), table.settings.get("names", {})
    models = sorted(set(model_of.values()), key=lambda model: (model != NONE, model))
    methods = {label: without_option(label, "mismatch") for label in model_of}
    rows: dict[tuple[str, int], dict[tuple[str, str], dict[str, Any]]] = {}
    for row in table.rows:
        if row["iqm"] is not None:
            key = methods[row["algorithm"]], model_of[row["algorithm"]]
            rows.setdefault((row["env"], row["capacity"]), {})[key] = row
    blocks = []
    for (env, k), cells in sorted(rows.items()):
        lines = [
            (display_label(method, names), [_cell(cells, method, model) for model in models])
            for method in dict.fromkeys(methods.values())
            if any((method, model) in cells for model in models)
        ]
        title = f"{env}, K = {k}" if len(results.grid.envs) > 1 else f"K = {k}"
        blocks.append(Block(title, "algorithm", [_column(model) for model in models], lines))
    about = (
        f"IQM over {size(table)}, below it {below(table)}; bold: below the estimate without a mismatch; {scale(table)}"
    )
    return Sheet("Score by mismatch model", [about, run_facts(table)], blocks, table.draft)


def _column(model: str) -> str:
    return "no mismatch" if model == NONE else option_text("mismatch", model).removeprefix("mismatch ")


def _cell(cells: dict[tuple[str, str], dict[str, Any]], method: str, model: str) -> SheetCell:
    row = cells.get((method, model))
    if row is None:
        return SheetCell("–")
    plain, dots = cells.get((method, NONE)), row.get("dots", {}).get("iqm", [])
    low, high = row["iqm_low"], row["iqm_high"]
    most = high if high is not None else max(dots, default=None)
    is_lower = plain is not None and plain is not row and most is not None and most < plain["iqm"]
    text = f"({', '.join(f'{x:.2f}' for x in dots)})" if dots else "" if low is None else f"[{low:.2f}, {high:.2f}]"
    return SheetCell(f"{row['iqm']:.2f}", text, row["iqm"], is_lower)
