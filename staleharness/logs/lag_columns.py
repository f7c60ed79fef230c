"""What real systems call their lag, and what they count.

`versions` are trainer steps after which new weights reach the actors; `gradient_steps` are optimiser steps, of which a
version may hold many. A name that was not seen in a system's own code is not `certain`, and the reader says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import UserError, shorten

UNITS = ("versions", "gradient_steps")


@dataclass(frozen=True)
class System:
    name: str
    pattern: str  # of the whole name of its column
    unit: str
    what: str  # of which its rows are means
    certain: bool = True


SYSTEMS = (
    # learner.py: curr_policy_version - mb.policy_version, of the last minibatch; written as train/<name>
    System("Sample Factory", r"train/version_diff_avg", "gradient_steps", "the last minibatch"),
    # rllib/utils/metrics: DIFF_NUM_GRAD_UPDATES_VS_SAMPLER_POLICY, below a path that differs between its API stacks
    System("RLlib", r"(.*/)?diff_num_grad_updates_vs_sampler_policy", "gradient_steps", "a train batch"),
    # orchestrator/scheduler.py: batch/off_policy_level/mean, later off_policy_level/all/mean
    System("prime-rl", r"(batch/)?off_policy_level/(all/)?mean", "versions", "the rollouts of a step"),
    # algorithms/async_utils.py, logged below train/
    System("NeMo-RL", r"(train/)?avg_trajectory_age", "versions", "the trajectories of a step"),
    # docs of the asynchronous trainer (trajectory_staleness, ..._worst); the path before and after it is a guess
    System("verl", r"(.*/)?trajectory_staleness([/_]mean)?", "versions", "the newest part of a trajectory", False),
    System("staleharness", r"lag_mean", "versions", "the decisions of a phase"),
    System("a table of lags", r"lag", "versions", "a row"),
)
NO_LAG = {
    r"fully_async/count/stale_.*": "verl's fully_async counts how many samples are stale, which is no lag",
    r"(.*/)?staleness_capacity.*": "a capacity is no lag",
}


def lag_column(names: Iterable[str], where: str) -> tuple[str, System]:
    """The column that a known system writes its mean lag to. W&B's tables put `<run> - ` before a name. Raises
    `UserError` where there is none, or more than one."""
    names = list(names)
    found = [(n, system) for n in names for system in SYSTEMS if re.fullmatch(system.pattern, _plain(n))]
    if len(found) > 1:
        raise UserError(
            f"{where}: {len(found)} columns may be the lag: {_listed(n for n, _ in found)}; "
            "say which one: COLUMNS=lag=NAME"
        )
    if not found:
        hints = [hint for p, hint in NO_LAG.items() if any(re.fullmatch(p, _plain(n)) for n in names)]
        why = f" ({'; '.join(hints)})" if hints else ""
        raise UserError(
            f"{where}: no column has a name that is known to be a lag{why}; "
            f"say which one: COLUMNS=lag=NAME; there are: {_listed(names)}"
        )
    return found[0]


def _plain(name: str) -> str:
    return name.rpartition(" - ")[2].strip()


def _listed(names: Iterable[str]) -> str:
    names = sorted(names)
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(shorten(n) for n in names[:8]) + more
