"""Ledger of a simulated pipeline: the fate of every row and decision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .event_log import FATES, Ints, PipelineRecord

TRAINED = FATES.index("trained")


def stale_stretches(record: PipelineRecord) -> NDArray[np.bool_]:
    """Return the stretches [m] of rows that the trainer took but left out of the loss: those older than `max_lag`, or
    with stale=drop_row all stretches of a row that has one."""
    pipeline, row = record.pipeline, record.stretch_row
    if pipeline.max_lag is None or pipeline.stale not in ("mask", "drop_row"):
        return np.zeros(len(row), dtype=np.bool_)
    stale = (record.fate[row] == TRAINED) & (record.step[row] - record.stretch_version > pipeline.max_lag)
    if pipeline.stale == "drop_row":
        stale = np.bincount(row[stale], minlength=len(record.slot))[row] > 0
    return np.asarray(stale, dtype=np.bool_)


def trained_rows(record: PipelineRecord) -> NDArray[np.bool_]:
    """Return the rows [n] of which at least a stretch was trained on."""
    in_loss = np.bincount(record.stretch_row[~stale_stretches(record)], minlength=len(record.slot)) > 0
    return np.asarray((record.fate == TRAINED) & in_loss, dtype=np.bool_)


def stretch_lengths(record: PipelineRecord) -> Ints:
    """Return the decisions of each stretch [m]."""
    begin = np.append(0, record.stretch_end[:-1])
    begin[np.append(True, record.stretch_row[1:] != record.stretch_row[:-1])] = 0
    length: Ints = record.stretch_end - begin
    return length


def row_ledger(record: PipelineRecord, n: int) -> dict[str, dict[str, int]]:
    """Count the first n `rows` that began, and their `decisions`, by fate: generated = the sum of all the others.

    `masked` were taken by the trainer and left out of the loss. Raises `ArithmeticError` where a ledger does not close,
    which would be an error of the simulation.
    """
    length, inside = stretch_lengths(record), record.stretch_row < n
    masks = {
        "rows": int((record.fate[:n] == TRAINED).sum() - trained_rows(record)[:n].sum()),
        "decisions": int(length[stale_stretches(record) & inside].sum()),
    }
    ledgers = {"rows": {"generated": n}, "decisions": {"generated": int(length[inside].sum())}}
    for unit, weights in (("rows", None), ("decisions", record.done[:n])):
        counts = np.bincount(record.fate[:n], weights, len(FATES)).astype(int).tolist()
        ledgers[unit] |= dict(zip(FATES, counts, strict=True))
        ledgers[unit]["trained"] -= masks[unit]
        ledgers[unit]["masked"] = masks[unit]
        if 2 * ledgers[unit]["generated"] != sum(ledgers[unit].values()):
            raise ArithmeticError(f"the ledger of {unit} does not close: {ledgers[unit]}")
    return ledgers


def ledger(record: PipelineRecord) -> dict[str, dict[str, int]]:
    """Return the ledger of the whole run in `rows` and `tokens`. `lost` are decisions that a failure took, whose rows
    are generated again."""
    ledgers = row_ledger(record, len(record.slot))
    tokens = ledgers["decisions"]
    return {
        "rows": ledgers["rows"],
        "tokens": {**tokens, "generated": tokens["generated"] + record.lost, "lost": record.lost},
    }
