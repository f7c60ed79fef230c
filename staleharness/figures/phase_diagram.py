"""Score over the capacity and one option: which value is best at which lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..statistics.labels import display_label, option_values, without_option
from ..statistics.results import Results
from ..statistics.table import Table
from .captions import below, made, scale, size
from .registry import SHEETS
from .sheet import Block, Entry, Sheet

Rows = Mapping[tuple[int, Any], Mapping[str, Any]]  # (K, value) -> row of the table


@SHEETS.register("phase_diagram")
def phase_diagram(results: Results, table: Table, *, option: str, name: str = "") -> Sheet:
    """Normalised IQM with its interval over capacity and an option's values, greatest on top: a map per method, the
    best value at each capacity bold where it is clear."""
    values, ks = option_values(results, option), table.settings["capacities"]
    order = sorted(set(values.values()), reverse=True)
    method_of = {label: without_option(label, option) for label in values}
    blocks = []
    for method in sorted(set(method_of.values())):
        rows = {
            (r["capacity"], values[r["algorithm"]]): r
            for r in table.rows
            if method_of.get(r["algorithm"]) == method and r["iqm"] is not None
        }
        lines = [(f"{v:g}", [_entry(rows, k, v, order) for k in ks]) for v in order]
        blocks.append(Block(display_label(method), name or option, [f"K = {k}" for k in ks], lines))
    about = (
        f"IQM over {size(table)}, below it {below(table)}; bold: the best value at its K, where its interval, or each "
        f"of its runs, is above the next best's estimate; {scale(table)}"
    )
    return Sheet(f"Score over K and {name or option}", [about, made(table)], blocks, table.draft)


def _entry(rows: Rows, k: int, value: Any, order: Sequence[Any]) -> Entry:
    row = rows.get((k, value))
    if row is None:
        return Entry("–")
    low, high = row["iqm_low"], row["iqm_high"]
    others = [rows[k, v]["iqm"] for v in order if v != value and (k, v) in rows]
    dots = row.get("dots", {}).get("iqm", [])
    ends = "" if low is None else f"[{low:.2f}, {high:.2f}]"
    clear = bool(others) and (low > max(others) if low is not None else len(dots) > 1 and min(dots) > max(others))
    below = f"({', '.join(f'{x:.2f}' for x in dots)})" if dots else ends
    return Entry(f"{row['iqm']:.2f}", below, row["iqm"], clear)
