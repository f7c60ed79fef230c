"""Published runs of given ids, found in the bundles of `results/reference/` or inside the wheel."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from .bundle_reader import arrow_table, parts
from .store import Store
from .stored_run import StoredRun
from .study_runs import published_bundles


def published_runs(run_ids: Collection[str]) -> list[tuple[StoredRun, str]]:
    """Read the runs that a published bundle holds, each with the name of the first bundle by name that does."""
    ids, runs = set(run_ids), []
    for bundle in published_bundles():
        if not ids:
            break
        if ids_in_bundle := ids & _ids(bundle):
            runs += [(run, bundle.name) for run in Store(bundle).read_all(sorted(ids_in_bundle))]
            ids -= ids_in_bundle
    return runs


def _ids(bundle: Path) -> set[str]:
    return {run_id for files in parts(bundle) for run_id in arrow_table(bundle / files[0], ["id"])["id"].to_pylist()}
