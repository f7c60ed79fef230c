"""Columns in which real systems log their lag: whose lag, in which unit, and what a value is a mean over.

`versions` are trainer steps after which new weights reach the actors; `gradient_steps` are optimiser steps, of which a
version may have many; `samples` are rows trained on, of which a version has a batch. A mean over `rows` counts each row
once, at one of its decisions; a mean over `decisions` counts each decision, and is larger where long rows are old.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..base.text import listing
from ..errors import UserError, shorten

UNITS = ("versions", "gradient_steps", "samples")
OVER = ("rows", "decisions")


@dataclass(frozen=True)
class System:
    """One column of a real system: `pattern` matches its whole name."""

    name: str
    pattern: str
    unit: str
    what: str  # whose lag a value has
    source: str = ""  # where the system's code computes it
    over: str = "rows"  # of `OVER`: what a value is a mean over
    each: str = "step"  # a value is a mean over a training step, or the lag of one "row"
    kind: str = "tokens"  # of the tasks that the system trains; empty: any


# Of two columns of one system the first one here is the lag.
SYSTEMS = (
    System(
        "prime-rl",
        r"off_policy/mean",
        "versions",
        "episodes trained on, from the version that each began with",
        "PrimeIntellect-ai/prime-rl 559b447, orchestrator/orchestrator.py:735 and utils.py:57",
    ),
    System(  # until 2026-06: a7db217, orchestrator/scheduler.py:434 and 454; batch/... before 2026-03
        "prime-rl",
        r"off_policy_level/all/mean|batch/off_policy_level/mean",
        "versions",
        "rollouts in flight when a step was logged, which are not the rows trained on",
        "PrimeIntellect-ai/prime-rl a7db217, orchestrator/scheduler.py:434",
    ),
    System(
        "verl",
        r"(.*/)?off_policy/trajectory_staleness_worst/mean",
        "versions",
        "trajectories, from the oldest version in each",
        "verl-project/verl 1dda039, trainer/ppo/v1/trainer_base.py:1869",
    ),
    System(
        "verl",
        r"(.*/)?off_policy/trajectory_staleness/mean",
        "versions",
        "trajectories, from the newest version in each: the least lag of a row",
        "verl-project/verl 1dda039, trainer/ppo/v1/trainer_base.py:1868",
    ),
    System(
        "verl",
        r"fully_async/trajectory_staleness/mean",
        "versions",
        "trajectories, from their tokens' versions where these are recorded, else from the oldest",
        "verl-project/verl pull request 7569, which was not merged",
        "decisions",
    ),
    System(
        "AReaL",
        r"(.*/)?version_stats/sample_staleness_theta_avg",
        "versions",
        "generated tokens",
        "inclusionAI/AReaL 4aef98d, trainer/ppo/actor.py:1082",
        "decisions",
    ),
    System(
        "SkyRL",
        r"async/staleness_mean",
        "versions",
        "groups, from the step in which each was scheduled",
        "NovaSky-AI/SkyRL a956457, train/fully_async_trainer.py:997 and 1117",
    ),
    System(
        "miles",
        r"rollout/fully_async/avg_staleness",
        "versions",
        "groups taken from the buffer, from the oldest version in each; those then dropped as stale included",
        "radixark/miles 31f1ca9, rollout/fully_async_data_buffer.py:157 and 173",
    ),
    System(
        "open-instruct",
        r"(.*/)?num_steps_off_policy",
        "versions",
        "completions, from the step of the weights that each was requested with",
        "allenai/open-instruct e6c3044, data_loader.py:970",
    ),
    System(
        "ROLL",
        r"(.*/)?scheduler/off_policy_ratio",
        "versions",
        "samples, from the step in which each began: a number of steps, whatever the column's name",
        "alibaba/ROLL 8eb27cc, distributed/scheduler/generate_scheduler.py:709",
    ),
    System(
        "PipelineRL",
        r"stats/lag_mean",
        "samples",
        "samples, from the version that each was requested with",
        "ServiceNow/PipelineRL pull request 152, finetune_loop.py",
    ),
    System(
        "PipelineRL",
        r"stats/lag",
        "samples",
        "the oldest sample of a batch: the largest lag, not the mean",
        "ServiceNow/PipelineRL 58d3934, finetune_loop.py:881",
    ),
    System(
        "NeMo-RL",
        r"(train/)?avg_trajectory_age",
        "versions",
        "groups, from the version that generation began with",
        "NVIDIA-NeMo/RL 7ea279a, algorithms/async_utils/replay_buffer.py:294",
    ),
    System(
        "Sample Factory",
        r"train/version_diff_avg",
        "gradient_steps",
        "decisions of the last minibatch",
        "alex-petrenko/sample-factory, learner.py: curr_policy_version - mb.policy_version",
        "decisions",
        kind="control",
    ),
    System(
        "RLlib",
        r"(.*/)?diff_num_grad_updates_vs_sampler_policy",
        "gradient_steps",
        "train batches",
        "ray-project/ray, rllib/utils/metrics: DIFF_NUM_GRAD_UPDATES_VS_SAMPLER_POLICY",
        kind="control",
    ),
    System("staleharness", r"lag_mean", "versions", "decisions of a phase", "docs/metrics.md", "decisions", kind=""),
    System("a table of lags", r"lag", "versions", "rows", each="row", kind=""),
)
NO_LAG = {
    r"dispatcher/off_policy(_level)?[/_](mean|max)": "prime-rl's dispatcher/off_policy is of episodes still in flight",
    r"(fully_async/)?count/(dropped_)?stale.*": "verl's fully_async counts how many samples are stale, which is no lag",
    r"rollout/fully_async/buffer_\w+_staleness": "miles' buffer_..._staleness is of groups that wait, not trained on",
    r"(.*/)?staleness_capacity.*": "a capacity is no lag",
    r"async/staleness_ratio": "async/staleness_ratio is the share of stale groups, which is no lag",
    r"(.*/)?(clip_ratio/region_mean|completions/mean_length|weight_sync_time_s)": (
        "TRL logs no lag: its asynchronous trainer drops what is older than max_staleness, 4 unless set, "
        "and does not log how old the rest is"
    ),
    r"(.*/)?weight_version/(mean|min|max)": "miles' weight_version is a version; its lag needs --max-weight-staleness",
}
STATISTICS = ("max", "p50", "p90", "p95", "p99")


def lag_column(names: Iterable[str], where: str) -> tuple[str, System]:
    """Find the column of the lag. W&B's tables put `<run> - ` before a name. Raises `UserError` where there is none,
    or more than one system's or run's."""
    names = list(names)
    every_match = _matches(names)
    first: dict[str, System] = {}
    for system in SYSTEMS:
        if any(system is other for _, other in every_match):
            first.setdefault(system.name, system)
    matches = [(name, system) for name, system in every_match if system is first[system.name]]
    if len(matches) > 1:
        raise UserError(
            f"{where}: {len(matches)} columns may be the lag: {_names(n for n, _ in matches)}; "
            "say which one: COLUMNS=lag=NAME"
        )
    if not names:
        raise UserError(f"{where} has no columns: the file is empty")
    if not matches:
        hints = [hint for p, hint in NO_LAG.items() if any(re.fullmatch(p, _column_name(n)) for n in names)]
        reason = f" ({'; '.join(hints)})" if hints else ""
        raise UserError(
            f"{where}: no column has a name that is known to be a lag{reason}; "
            f"say which one: COLUMNS=lag=NAME; there are: {_names(names)}"
        )
    return matches[0]


def system_of(name: str) -> System | None:
    """Return the system that has a column of this name."""
    return next((system for _, system in _matches([name])), None)


def beside(name: str, system: System, names: Sequence[str]) -> list[tuple[str, System]]:
    """Return the other lags that a system logs, of the same run."""
    run = name.rpartition(" - ")[0]
    return [
        (other, also)
        for other, also in _matches(names)
        if other != name and also.name == system.name and other.rpartition(" - ")[0] == run
    ]


def statistic_columns(name: str, names: Iterable[str]) -> dict[str, str]:
    """Return {statistic: column} of the system's own `STATISTICS` beside a column of means."""
    end = max(name.rfind("mean"), name.rfind("avg"))
    if end < 0:
        return {}
    stem, rest = name[:end], re.sub("^(mean|avg)", "", name[end:])
    return {key: f"{stem}{key}{rest}" for key in STATISTICS if f"{stem}{key}{rest}" in set(names)}


def _matches(names: Iterable[str]) -> list[tuple[str, System]]:
    return [(n, system) for n in names for system in SYSTEMS if re.fullmatch(system.pattern, _column_name(n))]


def _column_name(name: str) -> str:
    return name.rpartition(" - ")[2].strip()


def _names(names: Iterable[str]) -> str:
    return listing([shorten(name) for name in sorted(names)], 8)
