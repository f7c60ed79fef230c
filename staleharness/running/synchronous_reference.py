"""Runs at K = 1 with which a plan's runs at larger K are compared, stored or published."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from ..errors import UserError
from ..store.bundle_reader import unchecked_ids
from ..store.store import Store
from ..store.stored_run import StoredRun
from ..store.study_runs import published_bundles
from ..task import find_env
from .identity import run_id
from .plan import Plan


@dataclass(frozen=True)
class LagReference:
    """Runs at K = 1 to compare a sweep with."""

    user_runs: list[StoredRun]  # of the user's results folder
    published: list[StoredRun]  # of methods without runs of the user
    bundles: list[str]  # bundles of the published runs

    @property
    def settings(self) -> dict[str, list[str]]:
        """Published rows, as a table's settings name them."""
        algorithms = sorted({run.label for run in self.published})
        machines = sorted({str(run.record["fingerprint"].get("cpu")) for run in self.published})
        return {"algorithms": algorithms, "bundles": self.bundles, "machines": machines}


def synchronous_reference(plan: Plan, store: Store) -> LagReference:
    """Find runs at K = 1 that equal the plan's in every other setting, of methods that it has at K > 1 only; they have
    the plan's labels (an earlier sweep may have used others)."""
    synchronous = {(run.label, run.spec.env) for run in plan.runs if run.spec.capacity == 1}
    places: dict[str, tuple[str, str]] = {}
    for run in plan.runs:
        if (place := (run.label, run.spec.env)) not in synchronous:
            try:
                spec = replace(run.spec, capacity=1)
                places[run_id(spec, find_env(spec.env)[1])] = place
            except UserError:
                continue  # a lag model that needs more than one version

    def with_label(run: StoredRun) -> StoredRun:
        return replace(run, record={**run.record, "label": places[run.id][0]})

    user_runs = [with_label(run) for run in store.read_all(places)] if places else []
    user_places = {places[run.id] for run in user_runs}
    others = published_runs({i for i, place in places.items() if place not in user_places})
    return LagReference(user_runs, [with_label(run) for run, _ in others], sorted({bundle for _, bundle in others}))


def published_runs(run_ids: Collection[str]) -> list[tuple[StoredRun, str]]:
    """Read the runs that a published bundle holds, each with the name of the first bundle by name that does."""
    ids, runs = set(run_ids), []
    for bundle in published_bundles():
        if not ids:
            break
        if ids_in_bundle := ids & unchecked_ids(bundle):
            runs += [(run, bundle.name) for run in Store(bundle).read_all(sorted(ids_in_bundle))]
            ids -= ids_in_bundle
    return runs
