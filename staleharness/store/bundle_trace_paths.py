"""Traces in bundles: those of runs with real actors, and those that runs replay.

A bundle holds the trace of a run with real actors as `traces/<run>.parquet`. The spec of a run that replays a trace
names the file's path at the time, which exists on one machine only; in a bundle the spec says
`trace:results/reference/<bundle>/traces/...`. Its id stays, because the id depends on the trace's content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.files import digest
from ..base.reference_results import PLACE, results_path
from .bundle_reader import NAME, is_packed, read_runs, trace_path
from .stored_run import StoredRun

REPLAY = re.compile(r"(trace:|trace\[file=)([^ ,\[\]]+)(.*)")  # lag model of a run that replays a trace, and its file


@dataclass(frozen=True)
class BundleTraces:
    """Traces that go into a bundle."""

    files: Mapping[str, Path]  # by their names in the bundle
    replays: Mapping[str, str]  # id of a run that replays a trace -> name of the trace in the bundle

    def bundle_spec(self, run_id: str, spec: Mapping[str, Any], bundle: str) -> dict[str, Any]:
        """Return the spec of a run, with the trace that it replays, if any, replaced by the bundle's."""
        if (name := self.replays.get(run_id)) is None or (lag := REPLAY.fullmatch(str(spec.get("lag")))) is None:
            return dict(spec)
        return {**spec, "lag": f"{lag[1]}{'/'.join(PLACE)}/{bundle}/{name}{lag[3]}"}


def find_traces(runs: Sequence[StoredRun], target: Path) -> BundleTraces:
    """Find the traces of runs, and others that they replay, named by their content. A bundle at `target`
    already has those that its own runs replay, wherever they came from."""
    traces = {trace_path(run.id): path for run in runs if (path := run.trace) is not None}
    names = {digest(path): name for name, path in traces.items()}
    lags = {run_id: record["spec"].get("lag") for run_id, record, *_ in read_runs(target)} if is_packed(target) else {}
    replays = {}
    for run in sorted(runs, key=lambda run: run.id):
        places = (*_places(lags.get(run.id), target), *_places(run.spec.get("lag"), run.path.parent.parent))
        if (path := next(filter(Path.is_file, places), None)) is not None:
            content = digest(path)
            replays[run.id] = name = names.setdefault(content, trace_path(content[:16]))
            traces.setdefault(name, path)
    return BundleTraces(traces, replays)


def _places(lag: object, root: Path) -> Iterator[Path]:
    """Yield the paths where a trace to replay may be: the one in the run's bundle, and the one that the lag names."""
    if (match := REPLAY.fullmatch(str(lag))) is not None:
        name = "/".join(Path(match[2]).parts[-2:])
        if NAME.fullmatch(name) and is_packed(root):
            yield root / name
        yield results_path(match[2])
