"""Options of lag models that have no effect beside others, or that starve the run. A run with one of them is refused.

The models themselves accept them, because stored runs may have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .base.text_formatting import plural
from .errors import UserError, shorten
from .lag import Draw, LagModel
from .rollout_schedule import Demand


class IdleOption(NamedTuple):
    """Option of a lag model that has no effect where `is_idle` holds for the model."""

    model: str
    option: str
    is_idle: Callable[[Any], bool]
    reason: str


NEVER_STALE = "nothing is too old without a {}"
WITHHOLD = "on_stale=withhold bounds what begins instead"
IDLE_OPTIONS = (
    IdleOption("async", "queue", lambda m: m.queue < 1, "a queue holds at least 1 batch"),
    IdleOption("async", "spread", lambda m: not m.delay, "it multiplies a delay, which is 0"),
    IdleOption("async", "spread", lambda m: m.actors == 1, "there is only one actor"),
    IdleOption("async", "slow", lambda m: m.spread == 1, "no actor is slower with spread=1"),
    IdleOption("queue", "on_stale", lambda m: m.max_lag < 0, NEVER_STALE.format("max_lag")),
    IdleOption("queue", "capacity", lambda m: m.on_stale == "withhold" and m.max_lag >= 0, WITHHOLD),
    IdleOption("prime_rl", "target_lag", lambda m: m.on_stale == "withhold", WITHHOLD),
    IdleOption("pipeline_rl", "buffer", lambda m: m.max_lag >= 0, "a max_lag holds generation back instead"),
    IdleOption("nemo_rl", "on_stale", lambda m: m.sampler != "windowed", "only sampler=windowed uses it"),
    IdleOption("nemo_rl", "buffered", lambda m: m.sampler != "windowed", "only sampler=windowed uses it"),
    IdleOption("nemo_rl", "buffered", lambda m: m.on_stale == "withhold", WITHHOLD),
    IdleOption("miles", "on_stale", lambda m: m.max_weight_staleness < 0, NEVER_STALE.format("max_weight_staleness")),
    IdleOption("tinker", "on_stale", lambda m: m.pipeline_depth >= 0, "nothing is too old with a pipeline_depth"),
)


def check_options(model: LagModel, demand: Demand | None = None, capacity: int = 1) -> None:
    """Raise `UserError` for an option that the user gave and that has no effect beside the model's others, or with this
    number of rows in a phase, for a bound that the rows of a phase never keep, and for lags that are never drawn."""
    for part in model.parts():
        defaults = part.hyper_parameters()
        for name, option, is_idle, reason in IDLE_OPTIONS:
            if part.name == name and getattr(part, option) != defaults[option] and is_idle(part):
                value = getattr(part, option)
                raise UserError(f"LAG={shorten(part.text)}: {option}={value} does nothing, as {reason}; leave it out")
        period, lag = (getattr(part, option, 0) for option in ("every", "lag"))
        if part.name == "slow_actors" and demand is not None and lag and period > demand.groups:
            raise UserError(
                f"LAG={shorten(part.text)}: no actor is slow: one in {period} would be, and a phase has "
                f"{plural(demand.groups, 'actor')}; give every={demand.groups} or less"
            )
        if part.name == "cap" and demand is not None:  # a slow actor is as slow in each redraw
            phase = min(capacity, demand.phases - 1)
            part.assign(Draw(phase, demand.groups, capacity, demand.length, demand.seed, (phase,)))
