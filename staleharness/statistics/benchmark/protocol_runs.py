"""Runs of a benchmark protocol: by row, with their scores and the learning rate that the ladder chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import UserError
from ...store.stored_run import StoredRun
from ..aggregate import area
from ..method_labels import without_options
from .protocol import BASELINE, Protocol, all_protocols


def method_of(run: StoredRun) -> str:
    """Return the label of a run's method without its learning rate, which is the ladder's."""
    return without_options(run.label, "learning_rate")


def digest_of(run: StoredRun) -> str:
    """Return the digest of the protocol that a run has a place in, or an empty text."""
    return next((protocol.digest for protocol in all_protocols() if protocol.place_of(run) is not None), "")


def benchmark_command(runs: Iterable[StoredRun]) -> str:
    """Return the commands that make runs which all follow one protocol, one for each method; else an empty text."""
    runs = list(runs)
    methods = sorted({method_of(run) for run in runs})
    for protocol in all_protocols():
        if runs and all(protocol.place_of(run) is not None for run in runs):
            names = dict.fromkeys(protocol.entry_of(method) for method in methods)
            return " && ".join(f"staleharness benchmark --track={protocol.track} --algo='{name}'" for name in names)
    return ""


@dataclass
class MethodRuns:
    """Runs of one row, by their place: (environment, factor of the rate) -> seed -> run."""

    tuning: dict[tuple[str, float], dict[int, StoredRun]] = field(default_factory=dict)
    report: dict[tuple[str, float], dict[int, StoredRun]] = field(default_factory=dict)


def choose_rate(areas: Mapping[float, Sequence[float]]) -> float:
    """Return the factor of the rate with the highest mean over its tuning runs; the one nearest to 1 on a tie."""
    return max(areas, key=lambda factor: (np.mean(areas[factor]), -abs(np.log(factor))))


def chosen_rate(protocol: Protocol, runs: MethodRuns, gaps: bool = False) -> float | None:
    """Return the step of the ladder that a method takes at one capacity; None while a tuning run is missing.

    gaps: choose among the rates whose tuning runs are all there. A rate at which a run diverged has none.
    """
    areas: dict[float, list[float]] = {}
    for factor in protocol.rates:
        by_env = [runs.tuning.get((env, factor), {}) for env in protocol.env]
        if all(len(by_seed) == len(protocol.tuning_seeds) for by_seed in by_env):
            areas[factor] = [area_of(protocol, run) for by_seed in by_env for run in by_seed.values()]
    complete = len(areas) == len(protocol.rates) or (gaps and areas)
    return choose_rate(areas) if complete else None


def look_rates(protocol: Protocol, runs: Iterable[StoredRun]) -> dict[int, float]:
    """Return capacity -> step of the ladder that the baseline chose, which a look takes too: at another one the
    comparison would be one of rates. 1 where the baseline's runs are not there."""
    rows = runs_by_row(protocol, (run for run in runs if method_of(run) == BASELINE))
    rates = {k: chosen_rate(protocol, rows.get((BASELINE, k), MethodRuns())) for k in protocol.capacity}
    return {k: 1.0 if rate is None else rate for k, rate in rates.items()}


def area_of(protocol: Protocol, run: StoredRun) -> float:
    """Mean height of a run's evaluation curve on the protocol's scale."""
    return area(run, protocol.scale, protocol.score)


def runs_by_row(protocol: Protocol, runs: Iterable[StoredRun]) -> dict[tuple[str, int], MethodRuns]:
    """Sort runs by (label without the learning rate, capacity). Runs outside the protocol are left out. Raises
    `UserError` where two runs claim one place."""
    rows: dict[tuple[str, int], MethodRuns] = {}
    for run in runs:
        if (place := protocol.place_of(run)) is None:
            continue
        members = rows.setdefault((method_of(run), place.capacity), MethodRuns())
        group = members.tuning if place.tuning else members.report
        seeds = group.setdefault((place.env, place.factor), {})
        if (other := seeds.setdefault(place.seed, run)).id != run.id:
            raise UserError(
                f"runs {other.id} and {run.id} are both {run.label} on {place.env} at K={place.capacity}, seed "
                f"{place.seed}: its plugin was changed in between; leave one of them out"
            )
    return rows
