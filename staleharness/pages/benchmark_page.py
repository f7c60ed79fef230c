"""Page of a StaleBench table: one HTML file, from `BenchmarkTable` alone."""

from __future__ import annotations

from html import escape
from pathlib import Path

from ..base.files import write_bytes
from ..base.text import number
from ..statistics.benchmark.benchmark_table import BenchmarkRow, BenchmarkTable

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
.table { overflow-x: auto } table { border-collapse: collapse } :root { color-scheme: light dark }
td, th { padding: .2rem .6rem; text-align: right; white-space: nowrap } td:first-child { text-align: left }
tr.yours { font-weight: bold } caption { text-align: left; padding: .5rem 0 } pre { overflow-x: auto }
"""
HEAD = ("method", "K", "score", "95 %", "kept", "− PPO-clip", "p (Holm)", "TV", "ESS", "rate", "n", "source")


def page(table: BenchmarkTable, verdict_text: str = "") -> str:
    """Return the page as HTML, with the verdict on one method above the table."""
    title = f"StaleBench {table.track} v{table.version}"
    learnt = [row for row in _in_order(table) if not row.did_not_learn]
    others = [row for row in _in_order(table) if row.did_not_learn]
    facts = f"{table.question} Protocol {table.digest}; {table.runs_done} of {table.runs_total} published runs."
    parts = [f"<h1>{escape(title)}</h1><p>{escape(facts)}</p>"]
    if verdict_text:
        parts.append(f"<pre>{escape(verdict_text)}</pre>")
    parts.append(_table("Score: area under the evaluation curve; 0 untrained, 1 PPO-clip without lag", learnt))
    if others:
        parts.append(_table("Did not learn: below half of PPO-clip’s score without lag", others))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return (
        f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{"".join(parts)}</body></html>'
    )


def write_page(folder: Path, table: BenchmarkTable, verdict_text: str = "") -> Path:
    """Write the page of a table and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table.track}.html"
    write_bytes(path, page(table, verdict_text).encode())
    return path


def _in_order(table: BenchmarkTable) -> list[BenchmarkRow]:
    order = {key: i for i, key in enumerate(table.methods)}
    return sorted(table.rows, key=lambda row: (-row.capacity, order[row.method, row.source]))


def _table(caption: str, rows: list[BenchmarkRow]) -> str:
    head = "".join(f"<th>{name}</th>" for name in HEAD)
    body = "".join(f'<tr class="{escape(row.source)}">{"".join(map(_cell, _texts(row)))}</tr>' for row in rows)
    return f'<div class="table"><table><caption>{caption}</caption><tr>{head}</tr>{body}</table></div>'


def _cell(text: str) -> str:
    return f"<td>{escape(text)}</td>"


def _texts(row: BenchmarkRow) -> list[str]:
    interval = "" if row.low is None or row.high is None else f"{row.low:.2f} to {row.high:.2f}"
    return [
        row.label,
        str(row.capacity),
        number(row.score),
        interval,
        "" if row.retained is None else f"{row.retained:.0%}",
        "" if row.difference is None else f"{row.difference:+.2f}",
        "" if row.holm is None else f"{row.holm:.4f}",
        number(row.tv),
        number(row.ess),
        "" if row.rate is None else f"×{row.rate:.2g}",
        str(row.n),
        row.source,
    ]
