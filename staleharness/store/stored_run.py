"""One finished run, as whoever reads results has it, if its directory is what its manifest vouches for."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import digest, parse_json, read_json, write_json
from .packed import arrow_table, frame_of, is_packed, numbers, read_arrow, read_job, read_table, trace_in
from .record import parsed, wrong_with

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

RESULTS = ("job.json", "metrics.parquet", "run.json", "timing.parquet")  # what a manifest vouches for
TRACE = "trace.parquet"  # and for this, where actors were processes

SECONDS = "seconds/"  # before the name of a column of timing.parquet
MEMORY = "memory_mb"  # the column of timing.parquet that is no time: resident memory after a phase [MB]
EVALUATED = "eval_"  # before the name of a score: the column of its evaluations
PARTS = ("collect", "learn", "evaluate")  # of a phase's time, whatever the kind of task; other times are parts of these


@dataclass(frozen=True)
class StoredRun:
    """One finished run, read from its directory or from packed results."""

    path: Path  # <root>/runs/<id>, which packed results only name
    record: dict[str, Any]  # run.json
    seal: str  # sha256 of its manifest.json, and so of all that it holds

    @property
    def id(self) -> str:
        return str(self.record["id"])

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.record["spec"])

    @property
    def label(self) -> str:
        """The algorithm as the user named it."""
        return str(self.record["label"])

    @property
    def seed(self) -> int:
        return int(self.record["spec"]["seed"])

    @property
    def trace(self) -> Path | None:
        """Of a run with real actors, what they did; None where there were none."""
        inside = is_packed(root := self.path.parent.parent)
        path = root / trace_in(self.id) if inside else self.path / TRACE
        return path if path.is_file() else None

    def column(self, name: str) -> NDArray[np.float64] | None:
        """A column of the metrics, or `seconds/<part>` of the time, as numbers [phases], NaN where a phase has none;
        None where no phase has any. Each file is read once and all of it kept; not to be written to."""
        file = "timing" if name.startswith(SECONDS) else "metrics"
        if file not in self._tables:
            self._tables[file] = numbers(self._arrow(file))
        return self._tables[file].get(name.removeprefix(SECONDS))

    @functools.cached_property
    def _tables(self) -> dict[str, dict[str, NDArray[np.float64]]]:
        return {}

    def columns(self, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Those of these columns of the metrics that `column` would find, by name. Read anew and not kept: for whoever
        goes through thousands of runs."""
        return numbers(self._arrow("metrics", names))

    @functools.cached_property
    def curves(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Its learning curves by score: steps at which the newest policy was evaluated, and its mean return there,
        [points] each. Read once and kept: they are short."""
        import numpy as np

        held = self.columns(["steps", *(EVALUATED + score for score in self.record["scores"])])
        steps = held.pop("steps", None)
        if steps is None:
            return {}
        there = {name: ~np.isnan(values) for name, values in held.items()}
        return {name.removeprefix(EVALUATED): (steps[at], held[name][at]) for name, at in there.items()}

    def _arrow(self, name: str, columns: Sequence[str] | None = None) -> Any:
        if is_packed(root := self.path.parent.parent):
            return read_arrow(root, name, self.id, columns)
        return arrow_table(self.path / f"{name}.parquet", columns)

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """`metrics()`, read once; not to be written to."""
        return self.metrics()

    def metrics(self) -> pd.DataFrame:
        """One row per phase (`metrics.parquet`), read anew."""
        return self.table("metrics")

    def timing(self) -> pd.DataFrame:
        """Seconds per phase, and resident memory after it (`timing.parquet`), read anew."""
        return self.table("timing")

    def table(self, name: str) -> pd.DataFrame:
        """`metrics` or `timing`."""

        if is_packed(root := self.path.parent.parent):
            return read_table(root, name, self.id)
        return frame_of(self.path / f"{name}.parquet")

    def job(self) -> dict[str, Any]:
        """What was asked (`job.json`)."""
        if is_packed(root := self.path.parent.parent):
            return read_job(root, self.id)
        return dict(read_json(self.path / "job.json"))


def up_to_date(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """The runs, with settings that some of them are older than at the value that means what those did, as far as newer
    runs of their kind say it."""
    before: dict[str, dict[str, Any]] = {}
    for run in runs:
        before.setdefault(str(run.record["task"].get("kind")), {}).update(run.record.get("before", {}))

    def filled_in(run: StoredRun) -> StoredRun:
        spec = before[str(run.record["task"].get("kind"))] | run.spec
        return run if len(spec) == len(run.spec) else replace(run, record={**run.record, "spec": spec})

    return [filled_in(run) for run in runs]


def seal(path: Path) -> None:
    """Write the manifest: from now on the folder is a finished run, wherever it lies."""
    names = [*RESULTS, TRACE] if (path / TRACE).exists() else RESULTS
    write_json(path / "manifest.json", {name: digest(path / name) for name in names})


def read_intact(path: Path, run_id: str = "") -> StoredRun | str:
    """The run in a directory called like it, every file of which matches the manifest, or what is wrong with it. Each
    file is opened once."""
    try:
        sealed = (path / "manifest.json").read_bytes()
        manifest = dict(parse_json(sealed))
        if absent := sorted(set(RESULTS) - set(manifest)):
            return f"the manifest lacks {', '.join(absent)}"
        if other := sorted(set(manifest) - {*RESULTS, TRACE}):
            return f"the manifest names {other[0][:60]!r}"
        if links := [name for name in manifest if (path / name).is_symlink()]:
            return f"{links[0]} is a link"
        contents = {name: (path / name).read_bytes() for name in manifest}
        for name, content in contents.items():
            if hashlib.sha256(content).hexdigest() != manifest[name]:
                return f"{name} differs from the manifest"
        record = parsed(contents["run.json"])
        wrong = wrong_with(record, run_id or path.name, parsed(contents["job.json"]))
        return wrong or StoredRun(path, record, hashlib.sha256(sealed).hexdigest())
    except (OSError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
