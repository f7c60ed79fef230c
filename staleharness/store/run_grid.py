"""Cells of a grid of runs, and the settings that tell runs of one cell apart."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..base.console_log import LOGGER
from ..errors import UserError
from .stored_run import StoredRun


class Cell(NamedTuple):
    """Coordinates shared by runs that differ only in their seed."""

    label: str  # the algorithm as the user named it
    capacity: int
    env: str


@dataclass(frozen=True)
class RunGrid:
    """Runs by cell, each cell sorted by seed; cells sorted by capacity, label, environment."""

    cells: dict[Cell, list[StoredRun]]

    @property
    def labels(self) -> list[str]:
        return sorted({c.label for c in self.cells})

    @property
    def capacities(self) -> list[int]:
        return sorted({c.capacity for c in self.cells})

    @property
    def envs(self) -> list[str]:
        return sorted({c.env for c in self.cells})

    @property
    def runs(self) -> list[StoredRun]:
        return [run for members in self.cells.values() for run in members]

    def tasks(self, label: str, capacity: int) -> dict[str, list[StoredRun]]:
        """Return the runs of a row of a table, by environment."""
        return {c.env: rs for c, rs in self.cells.items() if (c.label, c.capacity) == (label, capacity)}

    def members(self, label: str, capacity: int) -> list[StoredRun]:
        """Return the runs of a row of a table, all environments together."""
        return [run for runs in self.tasks(label, capacity).values() for run in runs]

    @property
    def rows(self) -> list[tuple[str, int]]:
        """(label, capacity) of every row of a table."""
        return list(dict.fromkeys((c.label, c.capacity) for c in self.cells))


def cell_of(run: StoredRun) -> Cell:
    spec = run.record["spec"]
    return Cell(run.label, int(spec["capacity"]), str(spec["env"]))


def grid(runs: Iterable[StoredRun] | RunGrid) -> RunGrid:
    """Sort runs into cells; a grid stays as it is. Runs that claim the same seed of a cell, and that no setting tells
    apart, are left out (`drop_doubtful`). Raises `UserError` if a setting does tell them apart."""
    if isinstance(runs, RunGrid):
        return runs
    cells: dict[Cell, dict[int, StoredRun]] = {}
    for run in sorted(drop_doubtful(runs), key=lambda r: r.id):
        seeds = cells.setdefault(cell_of(run), {})
        seed = run.seed
        if (other := seeds.get(seed)) is not None and other.id != run.id:
            a, b = other.record["spec"], run.record["spec"]
            differ = ", ".join(f"{k}={a.get(k)!r} or {b.get(k)!r}" for k in sorted(a | b) if a.get(k) != b.get(k))
            choice = _choice(a, b)
            assert choice is not None, "drop_doubtful leaves no such pair"
            raise UserError(
                f"two runs are {describe_cell(cell_of(run))}, seed {seed} ({other.id} and {run.id}): they differ in "
                f"{differ}; a table can hold only one of them: choose with WHERE={choice[0]}={choice[1]}"
            )
        seeds[seed] = run
    order = sorted(cells, key=lambda c: (c.capacity, c.label, c.env))
    return RunGrid({c: [cells[c][s] for s in sorted(cells[c])] for c in order})


def drop_doubtful(runs: Iterable[StoredRun]) -> list[StoredRun]:
    """Leave out, each with a line in the log, runs that claim the same seed of a cell and that no filter tells apart:
    results of two versions of the code, or a forged record among them. Nothing says which of them is right, so that
    others which claim that seed of the cell are left out, too; all other runs still count."""
    runs = list(runs)
    claims: dict[tuple[Cell, int], dict[str, StoredRun]] = {}
    for run in runs:
        claims.setdefault((cell_of(run), run.seed), {})[run.id] = run
    doubtful = set[str]()
    for (cell, seed), members in claims.items():
        pairs = itertools.combinations(members.values(), 2)
        alike = {run.id for a, b in pairs if _choice(a.spec, b.spec) is None for run in (a, b)}
        if alike:
            LOGGER.warning(
                "left out: runs %s are all %s, seed %d, and differ in no setting; repeat the sweep for a table of the "
                "present code, or delete the others",
                " and ".join(sorted(alike)),
                describe_cell(cell),
                seed,
            )
            doubtful |= set(members)
    return [run for run in runs if run.id not in doubtful]


def _choice(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the first setting that tells two runs apart, with its value in `a`; None where there is none."""
    a, b = flat_settings(a), flat_settings(b)
    return next(((name, a[name]) for name in sorted(a.keys() & b.keys()) if a[name] != b[name]), None)


def describe_cell(cell: Cell) -> str:
    """Name a cell in messages."""
    return f"{cell.label} on {cell.env} at K={cell.capacity}"


def flat_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec's settings with the algorithm's hyper-parameters as `algorithm.name`."""
    rest = {k: v for k, v in spec.items() if k != "hyper"}
    return rest | {f"{spec['algorithm']}.{k}": v for k, v in spec.get("hyper", {}).items()}
