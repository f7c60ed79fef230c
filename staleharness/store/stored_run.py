"""A finished run as read from disk, and the manifest that its folder has to match."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import digest, parse_json, read_json, write_json
from ..errors import UserError, type_and_message
from .bundle_reader import arrow_table, is_packed, numeric_columns, read_arrow, read_job, trace_path
from .numpy_policy import POLICY, StoredPolicy
from .record_schema import parse_record, record_problem

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

RESULTS = ("job.json", "metrics.parquet", "run.json", "timing.parquet")  # listed in a manifest
TRACE = "trace.parquet"  # listed too, if actors were processes

OPTIONAL = (TRACE, POLICY)  # listed where a run has them
MODEL = "model"  # folder with the model of a language run, as transformers writes it; its files are listed, too
MODEL_FILE = re.compile(rf"{MODEL}/\w[\w.-]*")

SECONDS = "seconds/"  # prefix of a column of timing.parquet
MEMORY = "memory_mb"  # column of timing.parquet: resident memory after a phase [MB]
EVALUATION_PREFIX = "eval_"  # prefix of a score: column of its evaluations
TV = "tv_data"  # column: total variation between the newest policy and those that acted
PARTS = ("collect", "learn", "evaluate")  # of a phase's time, for every kind of task; other times are parts of these


@dataclass(frozen=True)
class StoredRun:
    """A finished run, read from its folder or from a bundle."""

    path: Path  # <root>/runs/<id>, absolute, also in a bundle, where it does not exist
    record: dict[str, Any]  # run.json
    seal: str  # sha256 of its manifest.json, and so of all its content

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
    def code(self) -> str:
        """Digest of the file of its method; empty in records of early versions."""
        return str(self.record.get("method", {}).get("code", ""))

    @property
    def trace(self) -> Path | None:
        """Trace of a run with real actors; None without."""
        inside = is_packed(root := self.path.parent.parent)
        path = root / trace_path(self.id) if inside else self.path / TRACE
        return path if path.is_file() else None

    def policy(self) -> StoredPolicy:
        """Read the policy that the run left. Raises `UserError` for a run that kept none (SET=keep=none, a kind of
        task that keeps none, a bundle), and for a file that its manifest does not list."""
        file = self.path / POLICY
        if not file.is_file():
            raise UserError(f"run {self.id} has no {POLICY}, which bundles and runs with SET=keep=none leave out")
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest() != read_json(self.path / "manifest.json").get(POLICY):
            raise UserError(f"{file} differs from the manifest of its run")
        return StoredPolicy.read(content, str(file))

    def model(self) -> Path:
        """Return the folder with the model that a language run left, for transformers. Raises `UserError` for a run
        that kept none (SET=keep=last keeps it; bundles leave it out), and for files that differ from its manifest."""
        folder, manifest = self.path / MODEL, {}
        if folder.is_dir():
            manifest = {k: v for k, v in read_json(self.path / "manifest.json").items() if MODEL_FILE.fullmatch(k)}
        if not manifest:
            raise UserError(f"run {self.id} has kept no model; SET=keep=last keeps it, and bundles leave it out")
        files = {f"{MODEL}/{path.name}": path for path in folder.iterdir()}
        for name in sorted(files.keys() | manifest):
            if name not in files or files[name].is_symlink() or digest(files[name]) != manifest.get(name):
                raise UserError(f"{self.path / name} differs from the manifest of its run")
        return folder

    def column(self, name: str) -> NDArray[np.float64] | None:
        """Return a column of the metrics, or `seconds/<part>` of the time, as numbers [phases], NaN for phases without
        one; None if no phase has one. Each file is read once and cached; do not write to the result."""
        file = "timing" if name.startswith(SECONDS) else "metrics"
        if file not in self._tables:
            self._tables[file] = numeric_columns(self._arrow(file))
        return self._tables[file].get(name.removeprefix(SECONDS))

    @functools.cached_property
    def _tables(self) -> dict[str, dict[str, NDArray[np.float64]]]:
        return {}

    def columns(self, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
        """Read those of these columns of the metrics that exist, by name. Not cached: for thousands of runs."""
        return numeric_columns(self._arrow("metrics", names))

    @functools.cached_property
    def curves(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Learning curves by score: steps at which the newest policy was evaluated, and its mean return there, [points]
        each. Read once and cached: they are short."""
        return {name.removeprefix(EVALUATION_PREFIX): x for name, x in self._curves.items() if name != TV}

    @property
    def tv_curve(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Steps, and total variation between the newest policy and those that acted, [phases] each; None if unmeasured.
        Read with `curves`."""
        return self._curves.get(TV)

    @functools.cached_property
    def _curves(self) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        import numpy as np

        columns = self.columns(["steps", *(EVALUATION_PREFIX + score for score in self.record["scores"]), TV])
        steps = columns.pop("steps", None)
        if steps is None:
            return {}
        at = {name: ~np.isnan(values) for name, values in columns.items()}
        return {name: (steps[i], columns[name][i]) for name, i in at.items()}

    def _arrow(self, name: str, columns: Sequence[str] | None = None) -> Any:
        """Read `metrics` or `timing` as a pyarrow table. Raises `UserError` for a file that is no table, or one
        without a row per phase: somebody may have rewritten its manifest."""
        if is_packed(root := self.path.parent.parent):
            return read_arrow(root, name, self.id, columns)
        file, phases = self.path / f"{name}.parquet", self.record["phases"]
        try:
            table = arrow_table(file, columns)
        except (OSError, ValueError) as error:
            raise UserError(f"{file} cannot be read; move its run away: {type_and_message(error)}") from error
        if table.num_rows != phases:
            raise UserError(f"{file} has {table.num_rows} rows, but its run has {phases} phases; move the run away")
        return table

    def metrics(self) -> pd.DataFrame:
        """Read the metrics, one row per phase (`metrics.parquet`)."""
        return self.table("metrics")

    def timing(self) -> pd.DataFrame:
        """Read seconds per phase, and resident memory after it (`timing.parquet`)."""
        return self.table("timing")

    def table(self, name: str) -> pd.DataFrame:
        """Read `metrics` or `timing`; from a bundle, without columns that have no value of this run."""
        frame: pd.DataFrame = self._arrow(name).to_pandas(use_threads=False)
        in_bundle = is_packed(self.path.parent.parent)  # with a column `run` and the columns of all runs
        return frame.drop(columns="run").dropna(axis=1, how="all") if in_bundle else frame

    def job(self) -> dict[str, Any]:
        """Read the job (`job.json`)."""
        if is_packed(root := self.path.parent.parent):
            return read_job(root, self.id)
        return dict(read_json(self.path / "job.json"))


def with_newer_settings(runs: Sequence[StoredRun]) -> list[StoredRun]:
    """Add settings and options that were introduced after a run, at the value that reproduces it, as recorded by newer
    runs of its kind of task and of its method."""
    before: dict[tuple[str, str], dict[str, Any]] = {}

    def values_before(run: StoredRun, method: str = "") -> dict[str, Any]:
        return before.setdefault((str(run.record["task"].get("kind")), method), {})

    for run in runs:
        newest = dict(run.record.get("before", {}))
        values_before(run, str(run.spec["algorithm"])).update(newest.pop("hyper", {}))
        values_before(run).update(newest)

    def fill_in(run: StoredRun) -> StoredRun:
        spec = values_before(run) | run.spec
        if options := values_before(run, str(run.spec["algorithm"])):
            spec["hyper"] = options | spec.get("hyper", {})
        return run if spec == run.spec else replace(run, record={**run.record, "spec": spec})

    return [fill_in(run) for run in runs]


def write_manifest(path: Path) -> None:
    """Write the manifest: from now on the folder is a finished run, wherever it is."""
    names = [*RESULTS, *(name for name in OPTIONAL if (path / name).exists())]
    if (path / MODEL).is_dir():
        names += [f"{MODEL}/{file.name}" for file in sorted((path / MODEL).iterdir())]
    write_json(path / "manifest.json", {name: digest(path / name) for name in names})


def read_run(path: Path, run_id: str = "") -> StoredRun | str:
    """Read the run in a folder named by its id (or in one given with `run_id`), if every file matches the manifest;
    otherwise return the problem. Each file is opened once."""
    try:
        seal = (path / "manifest.json").read_bytes()
        manifest = dict(parse_json(seal))
        if absent := sorted(set(RESULTS) - set(manifest)):
            return f"the manifest lacks {', '.join(absent)}"
        large = {POLICY, *filter(MODEL_FILE.fullmatch, manifest)}  # read when they are used
        if other := sorted(set(manifest) - {*RESULTS, *OPTIONAL} - large):
            return f"the manifest names {other[0][:60]!r}"
        if links := [name for name in (*manifest, MODEL) if (path / name).is_symlink()]:
            return f"{links[0]} is a symbolic link"
        contents = {name: (path / name).read_bytes() for name in manifest if name not in large}
        for name, content in contents.items():
            if hashlib.sha256(content).hexdigest() != manifest[name]:
                return f"{name} differs from the manifest"
        record = parse_record(contents["run.json"])
        wrong = record_problem(record, run_id or path.name, parse_record(contents["job.json"]))
        return wrong or StoredRun(path, record, hashlib.sha256(seal).hexdigest())
    except (OSError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
