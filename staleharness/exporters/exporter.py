"""Exporters by name, one per file of this folder, and the data of a run that they share: scalars over training, lag
histogram, final scores and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.module_registry import ModuleRegistry
from ..base.system_info import package_version
from ..errors import UserError, missing_extra, type_and_message
from ..store.run_grid import flat_settings
from ..store.stored_run import MEMORY, PARTS, SECONDS, StoredRun

Write = Callable[[Iterable[StoredRun], Path], list[Path]]  # runs into a folder; returns what was written


@dataclass(frozen=True)
class Exporter:
    """Named function that writes runs in the format of another tool."""

    name: str
    write: Write
    then: str  # next step for the user; `{folder}` stands for the folder of the export
    extra: str | None  # extra that it needs, which is also the name of its package

    def check(self) -> None:
        """Raise `UserError` if its extra is not installed."""
        if self.extra is not None and package_version(self.extra) is None:
            raise missing_extra(f"export {self.name}", self.extra)


class Exporters(ModuleRegistry[Exporter]):
    """name -> `Exporter`."""

    def register(self, name: str, then: str, extra: str | None = None) -> Callable[[Write], Write]:
        """Decorator of a function that writes runs into a folder."""

        def add(write: Write) -> Write:
            self.put(name, Exporter(name, write, then, extra), write)
            return write

        return add


EXPORTERS = Exporters("staleharness.exporters", "export", "exporters")


FILLING = "filling/"  # before the name of a metric: in a phase that fills the buffer before the budget
HISTOGRAM = "lag_histogram"  # column of metrics.parquet: counts of lags 0, 1, ... in phases


@dataclass(frozen=True)
class Phases:
    """A run's records, one entry per phase: axes [phases], scalars by name, NaN where a phase has none."""

    phase: NDArray[np.int64]
    steps: NDArray[np.int64]  # in the unit of the spec
    seconds: NDArray[np.float64]  # of wall-clock since the start, at the end of each phase
    scalars: dict[str, NDArray[np.float64]]  # columns of metrics.parquet; of timing.parquet `seconds/...` and memory
    lags: list[NDArray[np.int64]]  # decisions by lag; empty where the run has no histogram
    fill_phases: int  # number of first phases that fill the buffer; their steps are 0

    def name(self, metric: str, i: int) -> str:
        """Name of a metric in entry `i`: statistics leave out phases that fill the buffer, and so can a reader."""
        return FILLING + metric if self.phase[i] < self.fill_phases else metric

    def panels(self, i: int) -> dict[str, float]:
        """Scalars that entry `i` has, by their names in dashboards, which group by the part before the slash."""
        filling = self.phase[i] < self.fill_phases
        values = {
            self.name(name if "/" in name or filling else f"phase/{name}", i): column[i]
            for name, column in self.scalars.items()
        }
        return {name: value for name, value in values.items() if not np.isnan(value)}


def phases(run: StoredRun) -> Phases:
    """Read the run's tables. Raises `UserError` for tables whose content is not that of a run."""
    try:
        return _phases(run)
    except (KeyError, ValueError, TypeError) as error:
        problem = f"the tables of run {run.id} are not those of a run ({type_and_message(error)})"
        raise UserError(f"{problem}; move {run.path} away, or leave it out with filters") from error


def _phases(run: StoredRun) -> Phases:
    metrics, timing = run.metrics(), run.timing()
    names = [name for name in metrics.columns if name not in ("phase", "steps", HISTOGRAM)]
    scalars = {name: metrics[name].to_numpy(np.float64, na_value=np.nan) for name in sorted(names)}
    seconds = timing.select_dtypes("number").drop(columns="phase", errors="ignore")
    scalars |= {
        name if name == MEMORY else SECONDS + name: seconds[name].to_numpy(np.float64)
        for name in sorted(seconds.columns)
    }
    return Phases(
        metrics["phase"].to_numpy(np.int64),
        metrics["steps"].to_numpy(np.int64),
        np.cumsum(seconds[[*PARTS]].fillna(0.0).sum(axis=1).to_numpy(np.float64)),
        scalars,
        [np.asarray(counts, np.int64) for counts in metrics[HISTOGRAM]] if HISTOGRAM in metrics else [],
        int(run.spec.get("fill_phases", 0)),
    )


def final_scores(run: StoredRun) -> dict[str, float]:
    """`final/sampled`, `final/deterministic`: means over the final evaluation."""
    scores = run.record["scores"]
    return {f"final/{kind}": float(scores[kind]["mean"]) for kind in sorted(scores)}


def settings(run: StoredRun) -> dict[str, Any]:
    """Return the spec as flat plain data, with the label of tables; lists as text."""
    values = {"label": run.record["label"], **flat_settings(run.spec)}
    return {k: v if isinstance(v, (bool, int, float, str)) else str(v) for k, v in sorted(values.items())}
