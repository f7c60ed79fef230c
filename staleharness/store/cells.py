"""Runs in cells: what a run is one seed of, and a grid of such cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import UserError
from .stored_run import StoredRun


class Cell(NamedTuple):
    """What a run is one seed of."""

    label: str  # the algorithm as the user named it
    capacity: int
    env: str


@dataclass(frozen=True)
class Grid:
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
        """The runs of a row of a table, by environment."""
        return {c.env: rs for c, rs in self.cells.items() if (c.label, c.capacity) == (label, capacity)}

    def members(self, label: str, capacity: int) -> list[StoredRun]:
        """The runs of a row of a table, all environments together."""
        return [run for runs in self.tasks(label, capacity).values() for run in runs]

    @property
    def rows(self) -> list[tuple[str, int]]:
        """(label, capacity) of every row of a table."""
        return list(dict.fromkeys((c.label, c.capacity) for c in self.cells))


def cell_of(run: StoredRun) -> Cell:
    spec = run.record["spec"]
    return Cell(run.label, int(spec["capacity"]), str(spec["env"]))


def grid(runs: Iterable[StoredRun] | Grid) -> Grid:
    """Sort runs into cells; a grid stays as it is. Raises `UserError` where two runs claim the same seed of the same
    cell."""
    if isinstance(runs, Grid):
        return runs
    cells: dict[Cell, dict[int, StoredRun]] = {}
    for run in sorted(runs, key=lambda r: r.id):
        seeds = cells.setdefault(cell_of(run), {})
        seed = run.seed
        if (other := seeds.get(seed)) is not None and other.id != run.id:
            a, b = other.record["spec"], run.record["spec"]
            differ = ", ".join(f"{k}={a.get(k)!r} or {b.get(k)!r}" for k in sorted(a | b) if a.get(k) != b.get(k))
            raise UserError(
                f"two runs are {where(cell_of(run))}, seed {seed} ({other.id} and {run.id}): they differ in "
                f"{differ or 'code or versions'}; a table can hold only one of them{_choice(a, b)}"
            )
        seeds[seed] = run
    order = sorted(cells, key=lambda c: (c.capacity, c.label, c.env))
    return Grid({c: [cells[c][s] for s in sorted(cells[c])] for c in order})


def _choice(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """How to choose between two runs by a setting, where one tells them apart."""
    a, b = flat(a), flat(b)
    names = [name for name in sorted(a.keys() & b.keys()) if a[name] != b[name]]
    return f": choose with WHERE={names[0]}={a[names[0]]}" if names else ""


def where(cell: Cell) -> str:
    """A cell in words, for messages."""
    return f"{cell.label} on {cell.env} at K={cell.capacity}"


def flat(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with an algorithm's hyper-parameters beside the rest, under the algorithm's name."""
    rest = {k: v for k, v in spec.items() if k != "hyper"}
    return rest | {f"{spec['algorithm']}.{k}": v for k, v in spec.get("hyper", {}).items()}
