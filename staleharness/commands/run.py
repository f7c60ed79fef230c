"""`staleharness run`: one run, of any seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from ..errors import UserError
from .shared.arguments import SWITCH, GridOptions, Help, Presentation


@dataclass(frozen=True)
class Command(Presentation, GridOptions):
    """Train one algorithm on one environment with one capacity and one seed."""

    env: Annotated[str | None, Help("NAME")] = None
    """Environment, e.g. Hopper; `staleharness list` names them."""
    k: Annotated[str | None, Help("K", "1")] = None
    """Capacity of the policy buffer, e.g. 8. K=1 is on-policy."""
    algo: Annotated[str | None, Help("NAME")] = None
    """Algorithm, e.g. vaco[delta=0.1]; `staleharness list` names them."""
    mismatch: Annotated[str | None, Help("MODEL", "none")] = None
    """Mismatch between sampler and trainer: none, fp8, int4, noise:0.2, sampling[top_p=0.95] and more, joined by +."""
    n: Annotated[str | None, Help("N", "the preset's")] = None
    """Forward lag of language tasks and chains: minibatches per generation round, e.g. 4."""
    seeds: Annotated[str | None, Help("N|SEED,...")] = None
    """Refused: for sweep only."""
    seed: Annotated[str, Help("N", "0")] = "0"
    """The seed."""
    restart: Annotated[bool, SWITCH] = False
    """Start over if none of its checkpoints can be used here. They are kept beside the run."""


def handle(command: Command) -> int:
    from ..base.files import safe_name
    from ..base.parsing import whole_number
    from ..running.plan_execution import runner_for
    from ..store.store import Store
    from .shared.train_and_report import check_presentation, execute, plan_grid

    check_presentation(command)
    seed = whole_number(command.seed, "SEED")
    if seed < 0:
        raise UserError(f"SEED={seed} must not be negative")
    if command.seeds is not None:
        raise UserError("run takes one --seed, not --seeds (use sweep)")
    plan = plan_grid(command, [seed])
    if len(plan.runs) != 1:
        raise UserError(
            f"run takes one environment, one algorithm and one capacity; these options give {len(plan.runs)} runs (use "
            "sweep)"
        )
    store = Store(command.out)
    store.check()
    label = plan.runs[0].label
    name = safe_name(f"{plan.name}-{label}-seed{seed}", [plan.name, label, seed])
    return execute(command, replace(plan, name=name), store, runner_for(plan, store, jobs="1"), command.restart)
