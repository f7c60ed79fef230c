"""`staleharness run`: one run, of any seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from ..errors import UserError
from .shared.arguments import SWITCH, Grid, Shown, value


@dataclass(frozen=True)
class Command(Shown, Grid):
    """Train one algorithm on one environment with one capacity and one seed."""

    seed: Annotated[str, value("N", "0")] = "0"
    """The seed; --seeds is for sweep."""
    restart: Annotated[bool, SWITCH] = False
    """Start over where none of its checkpoints can be used here. They stay beside it."""


def handle(command: Command) -> int:
    from ..base.files import safe_name
    from ..base.parsing import whole_number
    from ..running.runner import ResourceRequest
    from ..running.runners import make_runner
    from ..store.store import Store
    from .shared.execute import execute, planned_of
    from .shared.present import check_shown

    check_shown(command)
    seed = whole_number(command.seed, "SEED")
    if seed < 0:
        raise UserError(f"SEED={seed} must not be negative")
    if command.seeds is not None:
        raise UserError("run takes one --seed, not --seeds (use sweep)")
    planned = planned_of(command, [seed])
    if len(planned.runs) != 1:
        raise UserError(
            f"run takes one environment, algorithm and capacity; this names {len(planned.runs)} (use sweep)"
        )
    store = Store(command.out)
    store.check()
    spec, label = planned.runs[0].spec, planned.runs[0].label
    name = safe_name(f"{planned.name}-{label}-seed{seed}", [planned.name, label, seed])
    runner = make_runner("local", ResourceRequest(1, spec.threads, spec.device))
    return execute(command, replace(planned, name=name), store, runner, command.restart)
