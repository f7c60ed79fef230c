"""Runs of a study in a results folder, the folders of published studies, and the runs that several of them hold."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..base.parsing import parse_choice, without_n
from ..base.reference_results import PLACE, bundle_places
from ..errors import UserError, nearest
from ..study import USUAL_LAG, SweepRequest, plain_env
from .locks_and_leases import MARKER
from .results_folder_checks import folders_of_results
from .run_grid import cell_of
from .store import Store
from .stored_run import StoredRun


@dataclass(frozen=True)
class StudyRuns:
    """Runs of a study in a results folder."""

    path: Path
    scale: str
    runs: list[StoredRun]
    other_runs: int  # number of runs in the folder that the study does not ask for
    requests: list[dict[str, Any]]  # every run that the study asks for, in the form of `aggregate.table`

    @property
    def complete(self) -> bool:
        return bool(self.requests) and len(self.runs) == len(self.requests)

    def restrict(self, labels: Sequence[str]) -> StudyRuns:
        """Return the study restricted to some algorithms. Raises `UserError` if the study lacks one of them."""
        available = {e["label"] for e in self.requests}
        for label in labels:
            if label not in available:
                raise UserError(f"only={label!r} is not in the study; {nearest(label, available)}")
        runs = [run for run in self.runs if run.label in labels]
        return replace(self, runs=runs, requests=[e for e in self.requests if e["label"] in labels])


def published_bundles() -> list[Path]:
    """List the folders of all published bundles, with those in `results/reference` of the working folder."""
    return folders_of_results(Path(*PLACE).absolute())


def bundle_path(bundles: Path, study: str, scale: str) -> Path:
    """Return the folder for a study at a scale, in the folder of all bundles."""
    return bundles / (study if scale == "small" else f"{study}_{scale}")


def find_bundle(bundles: Path, study: str, scale: str = "small") -> Path:
    """Return the folder that holds the results of a study, where that of all bundles has several places."""
    name = bundle_path(Path(), study, scale).name
    paths = [place / name for place in bundle_places(bundles)]
    return next((path for path in paths if (path / MARKER).exists()), bundles / name)


def read_study_runs(path: Path, study: SweepRequest, scale: str) -> StudyRuns | None:
    """Read the runs of a study from a folder, and those that it lacks from the studies that it reuses, in the folders
    beside it; None if the folder does not exist.

    Knows no plugin: a run belongs to the study if its label, capacity, environment, seed, lag model and settings are
    those of the study. Options in the brackets of a label belong to the label and are not compared as settings.
    """
    if not path.is_dir():
        return None
    store = Store(path)
    store.check_readable()
    request = study.at(scale)
    settings = {"lag": request.lag or USUAL_LAG, **request.settings}
    names: dict[tuple[str, int, str], str] = {(a, k, plain_env(e)): e for a, k, e in request.cells()}

    def belongs(run: StoredRun) -> bool:
        label, capacity, env = cell_of(run)
        options = label_options(label)
        alike = all(equals_setting(run.spec.get(k), v) for k, v in settings.items() if k not in options)
        return (label, capacity, plain_env(env)) in names and run.seed in request.seed_numbers and alike

    stored_runs = store.read_all()
    runs = [run for run in stored_runs if belongs(run)]
    other_runs = len(stored_runs) - len(runs)
    for folder in reused_bundles(path.parent, request, scale):
        present = {(cell_of(run), run.seed) for run in runs}
        others = Store(folder).read_all()
        runs += [run for run in others if belongs(run) and (cell_of(run), run.seed) not in present]
    full_names = {plain_env(run.spec["env"]): str(run.spec["env"]) for run in runs}
    requests = [
        {"label": a, "capacity": k, "env": full_names.get(plain, env), "seed": seed, "problem": None}
        for (a, k, plain), env in names.items()
        for seed in request.seed_numbers
    ]
    return StudyRuns(path, scale, runs, other_runs, requests)


def reused_bundles(bundles: Path, study: SweepRequest, scale: str = "small") -> list[Path]:
    """Return the folders, in the folder of all bundles, of the studies that a study reuses, if they are there."""
    return [path for name in study.reuse if (path := find_bundle(bundles, name, scale)).is_dir()]


def without_copies(runs: Sequence[StoredRun], bundles: Sequence[Path]) -> list[StoredRun]:
    """Return the runs that no bundle holds with identical metrics."""
    others = {(run.id, run.record["metrics_sha256"]) for path in bundles for run in Store(path).read_all()}
    return [run for run in runs if (run.id, run.record["metrics_sha256"]) not in others]


def label_options(label: str) -> Mapping[str, Any]:
    """Parse the options in the brackets of an algorithm's label; ` N=...`, the forward lag, follows the brackets."""
    return parse_choice(without_n(label)).options if "[" in label else {}


def equals_setting(value: Any, setting: Any) -> bool:
    """Return whether a setting of a stored run, where lists stand for tuples, equals that of a request."""
    return bool(value == (list(setting) if isinstance(setting, (list, tuple)) else setting))


class Overlap(NamedTuple):
    """Runs that a study shares with other published ones: their figures are not independent evidence."""

    identical: list[StoredRun]
    """Runs that another study holds with identical metrics."""

    identical_in: list[str]
    """Studies that hold them."""

    rerun: list[StoredRun]
    """Runs that other studies hold with different numbers: executed again on other hardware or with other code."""

    rerun_in: list[str]
    """Studies that hold those."""


@functools.cache
def _checksums(folder: Path) -> dict[str, dict[str, str]]:
    """Map each study in a folder of bundles to {run id: checksum of its metrics}."""
    return {
        path.name: {run.id: run.record["metrics_sha256"] for run in Store(path).read_all()}
        for path in folders_of_results(folder)
    }


def overlap_with(bundle: StudyRuns) -> Overlap:
    """Find the runs that other bundles in the same folder hold too."""
    runs = {run.id: run for run in sorted(bundle.runs, key=lambda run: run.id)}
    identical: dict[str, set[str]] = {}  # run -> studies
    rerun: dict[str, set[str]] = {}
    for study, checksums in _checksums(bundle.path.parent).items():
        if study != bundle.path.name:
            for run_id in runs.keys() & checksums.keys():
                group = identical if checksums[run_id] == runs[run_id].record["metrics_sha256"] else rerun
                group.setdefault(run_id, set()).add(study)
    rerun = {run_id: studies for run_id, studies in rerun.items() if run_id not in identical}
    return Overlap(
        [run for run_id, run in runs.items() if run_id in identical],
        sorted(set().union(*identical.values())),
        [run for run_id, run in runs.items() if run_id in rerun],
        sorted(set().union(*rerun.values())),
    )
