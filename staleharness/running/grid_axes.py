"""Axes of a grid of runs: methods, environments, capacities, forward lags, mismatches and seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..base.files import safe_name
from ..errors import UserError
from ..lag import read_lag
from ..mismatch import NONE, mismatch_text, read_mismatch
from ..store.record_schema import MAX_VERSIONS
from ..study import Question
from .methods_and_environments import (
    RequestedEnvironment,
    RequestedMethod,
    check_unique,
    resolve_environments,
    resolve_methods,
    under_mismatch,
)
from .usable_devices import check_device

MAX_RUNS = 100_000  # of one grid


@dataclass(frozen=True)
class GridAxes:
    """Axes of the grid, with the title of its report."""

    environments: Sequence[RequestedEnvironment]
    methods: Sequence[RequestedMethod]
    capacities: Sequence[int]
    forward: Sequence[int | None]
    seeds: Sequence[int]
    lag: str  # lag model for all runs; empty: the environment's
    mismatch: str  # mismatch model for all runs whose method names none
    title: str
    preset: str
    settings: Mapping[str, Any]  # of all runs, as in the question

    @property
    def name(self) -> str:
        """Name of the report's folder."""
        usual = self.environments[0].lag
        rest: dict[str, Any] = {"settings": self.settings, "lag": self.lag or usual}
        rest |= {"forward": list(self.forward)} if self.forward != (None,) else {}
        rest |= {"mismatch": self.mismatch} if self.mismatch != NONE else {}
        return report_name({env.id: env.short for env in self.environments}, self.capacities, self.preset, rest, usual)


def resolve_axes(question: Question, seeds: Sequence[int] | None = None) -> GridAxes:
    """Resolve a question, for its own seeds unless others are given.

    Raises `UserError` for anything that cannot be run.
    """
    if not question.env:
        raise UserError("ENV is missing; give one or several environments, e.g. ENV=Hopper")
    lag = read_lag(question.lag).text if question.lag else ""
    capacities, forward = question.capacity or (1,), question.forward or (None,)
    runs_per_method = len(capacities) * len(forward) * len(question.seed_numbers if seeds is None else seeds)
    # before anything is built for each
    _check_count(len(question.env) * runs_per_method * max(1, len(question.algorithm)))
    _check_capacities(capacities)
    if not question.seed_numbers:
        raise UserError(f"SEEDS={question.seeds} must be at least 1")
    check_device(str(question.settings.get("device", "cpu")))
    environments = resolve_environments(question)
    settings = {key for env in environments for key in env.family.settings.settings()} | {"lag", "mismatch"}
    methods = resolve_methods(question.algorithm, settings)
    mismatches = [mismatch_text(read_mismatch(text)) for text in question.mismatch] or [NONE]
    check_unique(mismatches, "MISMATCH")
    if len(mismatches) > 1:
        methods = [under_mismatch(method, text) for text in mismatches for method in methods]
    check_unique([str(n) for n in forward], "N")
    if question.forward and (least := min(question.forward)) < 1:
        raise UserError(f"N={least} must be at least 1")
    _check_count(len(environments) * runs_per_method * len(methods))
    title = f"{', '.join(env.id for env in environments)}, K = {', '.join(map(str, capacities))} ({question.preset})"
    return GridAxes(
        environments,
        methods,
        capacities,
        forward,
        question.seed_numbers if seeds is None else seeds,
        lag,
        mismatches[0] if len(mismatches) == 1 else NONE,
        question.question or title,
        question.preset,
        dict(question.settings),
    )


def report_name(
    envs: Mapping[str, str], capacities: Sequence[int], preset: str, rest: Mapping[str, Any], usual_lag: str
) -> str:
    """Name the report's folder: readable, and different for different questions (seeds and algorithms may be added).

    envs: id -> short name. rest: settings, lag model and forward lags. usual_lag: the lag model of the preset.
    """
    text = f"{'+'.join(envs.values())}-K{'+'.join(map(str, capacities))}-{preset}"
    return safe_name(text, [list(envs), list(capacities), rest], rest == {"settings": {}, "lag": usual_lag})


def _check_count(runs: int) -> None:
    """Raise `UserError` if a grid has more runs than one sweep takes."""
    if runs > MAX_RUNS:
        raise UserError(f"the grid has {runs:,} runs, more than {MAX_RUNS:,}; give fewer SEEDS, K, N, ENV or ALGO")


def _check_capacities(capacities: Sequence[int]) -> None:
    for capacity in capacities:
        if capacity < 1:
            raise UserError(f"K={capacity} is not a capacity; the policy buffer holds K >= 1 versions")
        if capacity > MAX_VERSIONS:
            raise UserError(f"K={capacity} is more versions than any run has phases; give at most {MAX_VERSIONS:,}")
    check_unique([str(capacity) for capacity in capacities], "K")
