"""The drawing functions that a figure's file can name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from ..errors import UserError, nearest
from ..statistics.table import Table
from ..store.store import StoredRun
from . import ablations, comparisons, curves, forward, rows, two_options, warning
from . import over_training as training
from . import overview as figures
from . import risk_table as retention
from . import time as spending

Drawing = Callable[..., Figure]  # (runs, table, width, **options)

DRAWINGS: dict[str, Drawing] = {
    "learning_curves": curves.learning_curves,
    "aggregate_curves": curves.aggregate_curves,
    "aggregate_scores": lambda runs, table, width: figures.aggregate_scores(table, width),
    "score_against_capacity": lambda runs, table, width, *, delay=False: figures.score_against_capacity(
        table, width, delay=delay
    ),
    "lag_histogram": figures.lag_histogram,
    "staleness": figures.staleness,
    "score_and_area": training.score_and_area,
    "metric_over_training": training.metric_over_training,
    "metric_over_time": training.metric_over_time,
    "rows_over_training": rows.rows_over_training,
    "steps_to_threshold": training.steps_to_threshold,
    "probability_of_improvement": comparisons.probability_of_improvement,
    "performance_profiles": comparisons.performance_profiles,
    "paired_differences": comparisons.paired_differences,
    "score_against_option": ablations.score_against_option,
    "score_against_two_options": two_options.score_against_two_options,
    "phase_diagram": ablations.phase_diagram,
    "score_and_time": spending.score_and_time,
    "risk_table": retention.risk_table,
    "metric_by_forward": forward.metric_by_forward,
    "warning_before_fall": warning.warning_before_fall,
}


def check_drawing(name: str, options: Mapping[str, Any], where: str) -> None:
    """Raise `UserError` where no drawing function has this name, or it lacks or does not take an option."""
    if name not in DRAWINGS:
        raise UserError(f"{where}: draw={name!r} is unknown; {nearest(name, DRAWINGS)}")
    parameters = inspect.signature(DRAWINGS[name]).parameters
    known = {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
    for key in options:
        if key not in known:
            raise UserError(f"{where}: {name} has no option {key!r}; {nearest(key, known)}")
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in options:
            raise UserError(f"{where}: {name} needs the option {key!r}")


def draw(
    name: str, runs: Sequence[StoredRun], table: Table, width: float, options: Mapping[str, Any]
) -> Figure:
    """The figure by the drawing function called `name`."""
    return DRAWINGS[name](runs, table, width, **options)
