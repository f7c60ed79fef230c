"""Page of a StaleBench table: the leaderboard's page with one track, and the verdict on one method in its notes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..base.files import write_bytes
from ..statistics.benchmark.benchmark_table import BenchmarkTable
from ..statistics.benchmark.benchmark_track import track_of
from ..statistics.benchmark.protocol import Protocol
from ..statistics.leaderboard import Leaderboard
from .leaderboard_page import leaderboard_html


def write_page(folder: Path, table: BenchmarkTable, protocol: Protocol, notes: Sequence[str] = ()) -> Path:
    """Write the page of a table and return its path."""
    track = track_of(table, protocol)
    board = Leaderboard(track.title, (track,), tuple(notes))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{table.track}.html"
    write_bytes(path, leaderboard_html(board, {}).encode())
    return path
