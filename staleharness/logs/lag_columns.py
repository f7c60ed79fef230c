"""Columns in which real systems log their lag, and the units.

`versions` are trainer steps after which new weights reach the actors; `gradient_steps` are optimiser steps, of which a
version may have many. A name that is not from a system's own code is not `certain`, and the log's note tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..base.text import listing
from ..errors import UserError, shorten

UNITS = ("versions", "gradient_steps")


@dataclass(frozen=True)
class System:
    """Name of the lag column of a real system."""

    name: str
    pattern: str  # of the whole name of its column
    unit: str
    what: str  # a row is a mean over these
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
    """Find the column of the mean lag. W&B's tables put `<run> - ` before a name. Raises `UserError` where there is
    none, or more than one."""
    names = list(names)
    matches = [(n, system) for n in names for system in SYSTEMS if re.fullmatch(system.pattern, _column_name(n))]
    if len(matches) > 1:
        raise UserError(
            f"{where}: {len(matches)} columns may be the lag: {_names(n for n, _ in matches)}; "
            "say which one: COLUMNS=lag=NAME"
        )
    if not matches:
        hints = [hint for p, hint in NO_LAG.items() if any(re.fullmatch(p, _column_name(n)) for n in names)]
        reason = f" ({'; '.join(hints)})" if hints else ""
        raise UserError(
            f"{where}: no column has a name that is known to be a lag{reason}; "
            f"say which one: COLUMNS=lag=NAME; there are: {_names(names)}"
        )
    return matches[0]


def _column_name(name: str) -> str:
    return name.rpartition(" - ")[2].strip()


def _names(names: Iterable[str]) -> str:
    return listing([shorten(name) for name in sorted(names)], 8)
