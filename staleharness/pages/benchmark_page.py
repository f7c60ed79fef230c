"""Page of a StaleBench table: the leaderboard's page with one track, and the verdict on one method in its notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..base.files import write_bytes
from ..statistics.benchmark.benchmark_table import BenchmarkTable
from ..statistics.benchmark.protocol import Protocol
from ..statistics.benchmark.track_rows import leaderboard_track
from ..statistics.leaderboard import Leaderboard
from ..store.stored_run import StoredRun
from .leaderboard_page import MethodText, leaderboard_html


def write_page(
    folder: Path,
    table: BenchmarkTable,
    protocol: Protocol,
    sources: Mapping[str, Iterable[StoredRun]],
    notes: Sequence[str] = (),
) -> Path:
    """Write the page of a table and return its path. sources: those that the table was made of."""
    track = leaderboard_track(protocol, table, sources)
    board = Leaderboard(f"StaleBench {track.title}", (track,), tuple(notes))
    texts = {str(run.spec["algorithm"]): _text(run) for runs in sources.values() for run in runs}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table.track}.html"
    write_bytes(path, leaderboard_html(board, texts).encode())
    return path


def _text(run: StoredRun) -> MethodText:
    """Words about a method from the record of a run."""
    method = run.record.get("method", {})
    return MethodText(summary=str(method.get("summary", "")), source=str(method.get("paper", "")))
