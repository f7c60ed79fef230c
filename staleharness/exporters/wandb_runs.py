"""Weights & Biases: one offline run per run, with the run's own id; `wandb sync` uploads them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from ..store.run_grid import cell_of
from ..store.stored_run import StoredRun
from .exporter import EXPORTERS, FILLING, HISTOGRAM, final_scores, phases

PROJECT = "staleharness"
DIGEST = "metrics.sha256"  # in the folder of a run: digest of its metrics


@EXPORTERS.register("wandb", "nothing was sent; wandb sync {folder}/wandb/offline-run-*", extra="wandb")
def write(runs: Iterable[StoredRun], folder: Path) -> list[Path]:
    """Write `<folder>/wandb/offline-run-<time>-<id>` of each run that is not there yet.

    W&B writes into a separate folder first; only a finished run is moved into place. Nothing is sent. Raises
    `UserError`, before anything is written, for a run whose tables are damaged, or that is there with other results.
    """
    runs, place = list(runs), folder / "wandb"
    for run in runs:
        phases(run)
        for file in place.glob(f"offline-run-*-{run.id}/{DIGEST}"):
            if file.read_text(encoding="ascii") != run.record["metrics_sha256"]:
                raise UserError(
                    f"{file.parent} holds other results of {run.label} seed {run.seed}, which was run again since; "
                    "give another folder (TO=...), or delete that one"
                )
    place.mkdir(exist_ok=True)
    folders = []
    for run in runs:
        if earlier := sorted(place.glob(f"offline-run-*-{run.id}")):
            folders.append(earlier[0])
            continue
        with tempfile.TemporaryDirectory(dir=folder, prefix=".wandb-", ignore_cleanup_errors=True) as scratch:
            folder_of_run = _write(run, Path(scratch))
            folders.append(folder_of_run.rename(place / folder_of_run.name))
    return folders


def _write(run: StoredRun, scratch: Path) -> Path:
    import wandb

    cell, data = cell_of(run), phases(run)
    # W&B would record facts about this process, not about the run.
    settings = wandb.Settings(
        console="off",
        silent=True,
        disable_git=True,
        disable_code=True,
        x_disable_stats=True,
        x_disable_meta=True,
        x_save_requirements=False,
    )
    session = wandb.init(
        mode="offline",
        dir=str(scratch),
        id=run.id,
        project=PROJECT,
        name=f"{cell.label} {cell.env} K={cell.capacity} seed {run.seed}",
        group=cell.env,
        job_type=cell.label,
        tags=[cell.label.partition("[")[0], f"K={cell.capacity}"],
        settings=settings,
        config={**run.spec, "label": run.record["label"], "fingerprint": run.record["fingerprint"]},
        reinit="finish_previous",
    )
    session.define_metric("*", step_metric="steps")  # the axis of its panels
    if data.fill_phases:
        session.define_metric(f"{FILLING}*", step_metric="phase")  # all at 0 steps
    for i, phase in enumerate(data.phase.tolist()):
        row: dict[str, Any] = {**data.panels(i), "phase": phase, "steps": int(data.steps[i])}
        if data.lags:
            edges = np.arange(len(data.lags[i]) + 1) - 0.5
            row[data.name(HISTOGRAM, i)] = wandb.Histogram(np_histogram=(data.lags[i], edges))
        session.log(row, step=phase)  # W&B merges rows of the same step, and phases that fill the buffer take no steps
    for name, value in final_scores(run).items():
        session.summary[name] = value
    session.finish()
    (folder_of_run,) = scratch.glob(f"wandb/offline-run-*-{run.id}")
    (folder_of_run / DIGEST).write_text(run.record["metrics_sha256"], encoding="ascii")
    return folder_of_run
