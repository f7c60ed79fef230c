"""Runs in cells: what a run is one seed of, and a grid of such cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import UserError
from .store import StoredRun


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
    def rows(self) -> list[tuple[str, int]]:
        """(label, capacity) of every row of a table."""
        return list(dict.fromkeys((c.label, c.capacity) for c in self.cells))


def cell_of(run: StoredRun) -> Cell:
    spec = run.record["spec"]
    return Cell(str(run.record["label"]), int(spec["capacity"]), str(spec["env"]))


def grid(runs: Iterable[StoredRun]) -> Grid:
    """Sort runs into cells. Raises `UserError` where two runs claim the same seed of the same cell."""
    cells: dict[Cell, dict[int, StoredRun]] = {}
    for run in sorted(runs, key=lambda r: r.id):
        seeds = cells.setdefault(cell_of(run), {})
        seed = int(run.record["spec"]["seed"])
        if (other := seeds.get(seed)) is not None and other.id != run.id:
            a, b = other.record["spec"], run.record["spec"]
            differ = ", ".join(
                f"{k}={a.get(k)!r} or {b.get(k)!r}" for k in sorted(a | b) if a.get(k) != b.get(k)
            )
            raise UserError(
                f"two runs are {where(cell_of(run))}, seed {seed} ({other.id} and {run.id}): they differ in "
                f"{differ or 'code or versions'}; a table can hold one of them"
            )
        seeds[seed] = run
    order = sorted(cells, key=lambda c: (c.capacity, c.label, c.env))
    return Grid({c: [cells[c][s] for s in sorted(cells[c])] for c in order})


def where(cell: Cell) -> str:
    """A cell in words, for messages."""
    return f"{cell.label} on {cell.env} at K={cell.capacity}"


def flat(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with an algorithm's hyper-parameters beside the rest, under the algorithm's name."""
    rest = {k: v for k, v in spec.items() if k != "hyper"}
    return rest | {f"{spec['algorithm']}.{k}": v for k, v in spec.get("hyper", {}).items()}
