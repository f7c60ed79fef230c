"""Ladder of learning rates: runs sorted by their place in a protocol, and the rate that a method takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import UserError
from ...store.stored_run import StoredRun
from ..aggregate import area
from .protocol import Protocol, method_of

LOOK_SEEDS = 2  # of a quick look, at the first learning rate


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
        held = [runs.tuning.get((env, factor), {}) for env in protocol.env]
        if all(len(each) == len(protocol.tuning_seeds) for each in held):
            areas[factor] = [area_of(protocol, run) for each in held for run in each.values()]
    complete = len(areas) == len(protocol.rates) or (gaps and areas)
    return choose_rate(areas) if complete else None


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


def runs_asked(protocol: Protocol, quick: bool = False) -> int:
    """Number of runs of one method, those of the ladder included."""
    each = LOOK_SEEDS if quick else len(protocol.seeds) + len(protocol.rates) * len(protocol.tuning_seeds)
    return each * len(protocol.env) * len(protocol.capacity)
