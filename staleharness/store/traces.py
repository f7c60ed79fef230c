"""Traces in a bundle: `traces/<run>.parquet` is that of a run with real actors, and whoever replays it names it there.

A replay's spec says where its trace lay when it was made, which nobody else has; packed, it says
`trace:results/reference/<bundle>/traces/...`. Its id stays: the content stands in it, and not the path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.files import digest, write_bytes
from ..base.published import PLACE, published
from ..trace import read_trace
from .packed import TRACES, trace_in
from .stored_run import TRACE, StoredRun

REPLAY = "trace:"  # what the lag of a replay begins with


def traces_of(runs: Sequence[StoredRun]) -> dict[str, Path]:
    """Name in the bundle -> file: of each run that left one, and others that runs replay, named by their content."""
    found = {trace_in(run.id): path for run in runs if (path := run.trace) is not None}
    known = {digest(path) for path in found.values()}
    replayed = {path for run in runs if (path := _replayed(run.spec)) is not None}
    others = {digest(path): path for path in sorted(replayed)}
    return found | {trace_in(content[:16]): path for content, path in others.items() if content not in known}


def write_traces(traces: Mapping[str, Path], to: Path) -> None:
    """Copy them as they are."""
    if traces:
        (to / TRACES).mkdir()
    for name, path in traces.items():
        write_bytes(to / name, path.read_bytes())


def renamed(spec: Mapping[str, Any], names: Mapping[str, str], bundle: str) -> dict[str, Any]:
    """A spec whose trace, if it has one, is the one in the bundle of this name; `names`: digest -> name there."""
    if (path := _replayed(spec)) is None:
        return dict(spec)
    return {**spec, "lag": f"{REPLAY}{'/'.join(PLACE)}/{bundle}/{names[digest(path)]}"}


def unpack_trace(root: Path, run_id: str, to: Path) -> None:
    """Lay a run's trace beside its record, if it has one. Raises `UserError` for what is none."""
    path = root / trace_in(run_id)
    if path.is_file():
        read_trace(str(path))
        write_bytes(to / TRACE, path.read_bytes())


def _replayed(spec: Mapping[str, Any]) -> Path | None:
    """The trace that a run follows, where it is still there."""
    lag = str(spec.get("lag", ""))
    path = published(lag.removeprefix(REPLAY)) if lag.startswith(REPLAY) else None
    return path if path is not None and path.is_file() else None
