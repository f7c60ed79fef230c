"""Traces in bundles: those of runs with real actors, and those that runs replay.

A bundle holds the trace of a run with real actors as `traces/<run>.parquet`. The spec of a run that replays a trace
names the file's path at the time, which exists on one machine only; in a bundle the spec says
`trace:results/reference/<bundle>/traces/...`. Its id stays, because the id depends on the trace's content.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..base.files import digest
from ..base.reference_results import PLACE, results_path
from .bundle_reader import trace_path
from .stored_run import StoredRun

REPLAY = "trace:"  # prefix of the lag model of a run that replays a trace


def find_traces(runs: Sequence[StoredRun]) -> dict[str, Path]:
    """Map names in the bundle to files: traces of the runs, and others that runs replay, named by their content."""
    traces = {trace_path(run.id): path for run in runs if (path := run.trace) is not None}
    contents = {digest(path) for path in traces.values()}
    replays = {path for run in runs if (path := _trace_to_replay(run.spec)) is not None}
    others = {digest(path): path for path in sorted(replays)}
    return traces | {trace_path(content[:16]): path for content, path in others.items() if content not in contents}


def with_bundle_trace(spec: Mapping[str, Any], names: Mapping[str, str], bundle: str) -> dict[str, Any]:
    """Return a spec in which the trace to replay, if any, is the one in the bundle; `names`: digest -> name there."""
    if (path := _trace_to_replay(spec)) is None:
        return dict(spec)
    return {**spec, "lag": f"{REPLAY}{'/'.join(PLACE)}/{bundle}/{names[digest(path)]}"}


def _trace_to_replay(spec: Mapping[str, Any]) -> Path | None:
    """Return the trace that a run replays, if the file still exists."""
    lag = str(spec.get("lag", ""))
    path = results_path(lag.removeprefix(REPLAY)) if lag.startswith(REPLAY) else None
    return path if path is not None and path.is_file() else None
