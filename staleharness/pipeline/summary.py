"""Everything that is said of a simulation, as plain data."""

from __future__ import annotations

from typing import Any

from .lag import lag_summary, measured
from .ledger import ledger
from .log import Record
from .use import WHY, use


def summary(record: Record) -> dict[str, Any]:
    """Lag, speed, use and what binds are measured from the step `warm_up` on; the ledger is of the whole run."""
    steps = record.pipeline.steps - record.warm
    span = record.seconds - record.since
    found = use(record)
    rows = measured(record)
    return {
        "pipeline": record.pipeline.to_json(),
        "seed": record.seed,
        "seconds": record.seconds,
        "warm_up": record.warm,
        "step_seconds": span / steps,
        "rows_per_second": float(rows.sum()) / span if span else None,
        "tokens_per_second": float(record.tokens[rows].sum()) / span if span else None,
        "lag": lag_summary(record),
        "trainer": found["trainer"],
        "slots": found["slots"],
        "binds": found["binds"],
        "why": WHY[found["binds"]],
        "ledger": ledger(record),
    }
