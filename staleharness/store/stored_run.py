"""One finished run, as whoever reads results has it, and whether its directory is what its manifest vouches for."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.files import digest
from .packed import frame_of, is_packed, read_runs, read_table

if TYPE_CHECKING:
    import pandas as pd

RESULTS = ("job.json", "metrics.parquet", "run.json", "timing.parquet")  # what a manifest vouches for

PARTS = (
    "collect",
    "learn",
    "evaluate",
)  # of a phase's time, whatever the kind of task; other times are parts of these


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

    @functools.cached_property
    def frame(self) -> pd.DataFrame:
        """`metrics()`, read once; not to be written to."""
        return self.metrics()

    def metrics(self) -> pd.DataFrame:
        """One row per phase (`metrics.parquet`), read anew."""
        return self.table("metrics")

    def timing(self) -> pd.DataFrame:
        """Seconds per phase (`timing.parquet`), read anew."""
        return self.table("timing")

    def table(self, name: str) -> pd.DataFrame:
        """`metrics` or `timing`."""

        if is_packed(root := self.path.parent.parent):
            return read_table(root, name, self.id)
        return frame_of(self.path / f"{name}.parquet")

    def job(self) -> dict[str, Any]:
        """What was asked (`job.json`)."""
        if is_packed(root := self.path.parent.parent):
            return next(job for run_id, _, job, _ in read_runs(root) if run_id == self.id)
        return dict(json.loads((self.path / "job.json").read_text()))


def damage(path: Path) -> str | None:
    """What is wrong with a run's directory, or None: every file must match the manifest."""
    try:
        manifest = dict(json.loads((path / "manifest.json").read_text()))
        if absent := sorted(set(RESULTS) - set(manifest)):
            return f"the manifest lacks {', '.join(absent)}"
        for name, expected in sorted(manifest.items()):
            if digest(path / name) != expected:
                return f"{name} differs from the manifest"
        json.loads((path / "run.json").read_text())
    except (OSError, ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return None
