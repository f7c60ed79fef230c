"""Methods that are one computation without lag, found by their runs: A-3PO, decoupled PPO and PPO-clip at K = 1.

Two runs of one seed and environment that end with the same scores after gradients of the same norms in every phase, bit
for bit, trained alike. So did their methods everywhere at K = 1, even where processors round other seeds differently.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...base.parsing import canonical_json
from ...store.run_grid import cell_of
from ...store.stored_run import StoredRun

COLUMN = "grad_norm"


def training_digest(run: StoredRun) -> bytes:
    """Norms of a run's gradients and its final scores as bytes; its id where it has none, to equal no other."""
    column = run.column(COLUMN)
    if column is None or not len(column):
        return run.id.encode()
    return column.tobytes() + canonical_json(run.record["scores"]).encode()


def same_without_lag(runs: Iterable[StoredRun]) -> dict[str, str]:
    """Map each label with runs at K = 1 to the first label, by name, that is the same computation there."""
    first: dict[str, str] = {}  # a forest, in which every label leads to the first of its group

    def root(label: str) -> str:
        while first[label] != label:
            label = first[label]
        return label

    holders: dict[tuple[str, int, bytes], str] = {}
    for run in runs:
        cell = cell_of(run)
        if cell.capacity != 1:
            continue
        first.setdefault(cell.label, cell.label)
        other = holders.setdefault((cell.env, run.seed, training_digest(run)), cell.label)
        low, high = sorted((root(other), root(cell.label)))
        first[high] = low
    return {label: root(label) for label in first}
