"""Lag models that simulate a pipeline once for a whole run; the simulated rows become the `Schedule`.

Time is counted in training steps, and the time of a row is spread evenly over its decisions.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

from .base.streams import integer
from .base.typed_values import plain_value
from .errors import UserError, shorten
from .lag import LagModel, option
from .pipeline.event_simulation import simulate
from .pipeline.pipeline_rows import schedule_of
from .pipeline.pipeline_settings import MAX_BATCHES, Pipeline
from .pipeline.workload_sampler import Lengths
from .rollout_schedule import Demand, Schedule

OnStale = Literal["drop_group", "drop_sample", "mask_tokens", "requeue", "withhold"]


@dataclass(frozen=True)
class PipelineLag(LagModel):
    """Derives lag from the rules of a pipeline.

    A subclass turns its own options into settings of the pipeline (`rules`); the options below set the load, under
    the same names for all models. Rows of a group begin together, and a row keeps its weights to its end unless the
    rules say otherwise.
    """

    family: ClassVar[str] = "simulated, once for a whole run"

    _: KW_ONLY
    slots: float = option(2.0, above=0, most=1000)
    """Rows generated at once, in batches."""
    row_time: float = option(1.0, least=1e-6, most=1e6)
    """Mean time of a row in training steps, in slots that are not slow."""
    cv: float = option(0.5, least=0, most=10)
    """Standard deviation of the time of a row over its mean."""
    sync_time: float = option(0.0, least=0, most=1e6)
    """Time of a weight transfer, in training steps."""
    pace: Literal["drawn", "length"] = "drawn"
    """`drawn`: the time of a row is random; `length`: it is row_time × its decisions / the most that it may have."""
    slow: float = option(0.0, least=0, most=1)
    """Share of the slots that are permanently slow, in whole groups."""
    slow_factor: float = option(1.0, least=1, most=1e6)
    """Time of a row in a slow slot over its time in the others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        cv = type(self).hyper_parameters()["cv"]
        self.require(
            "cv", not self.online or self.cv == cv, "left out with pace=length, which says how long a row takes"
        )
        consistent = (self.slow > 0) == (self.slow_factor > 1)
        self.require("slow", consistent, "above 0 together with slow_factor above 1")

    def rules(self, demand: Demand) -> dict[str, Any]:
        """Return settings of `pipeline.pipeline_settings.Pipeline`."""
        raise NotImplementedError(f"{type(self).__name__} must define rules(demand)")

    def pipeline(self, demand: Demand) -> Pipeline:
        """Return the pipeline of a run. Raises `UserError` for rules that exclude each other."""
        rules = self._checked_rules(demand)
        if "slots" in rules and self.slots != type(self).hyper_parameters()["slots"]:
            raise UserError(f"{self.title()}: its own rules set the slots; leave them out")
        row_times = f"lognormal[mean={self.row_time},cv={self.cv}]" if self.cv else f"constant:{self.row_time}"
        decision_time = 0.0
        if self.online:
            row_times, decision_time = "constant:0", self.row_time / demand.length
        settings = {
            "slots": rows_of(self.slots, demand),
            "workers": 1,
            "group": demand.rows,
            "unit": "group",
            "lengths": f"constant:{demand.length}",
            "token_seconds": decision_time,
            "environment": row_times,
            "batch": demand.groups * demand.rows,
            "train_seconds": 1.0,
            "steps": demand.phases,
            "slow": self.slow,
            "slow_factor": self.slow_factor,
            "sync_seconds": self.sync_time,
            "blocking": False,
            **rules,
        }
        pipeline = Pipeline().with_settings(settings, self.title())
        if self.online and pipeline.in_flight == "switch":
            raise UserError(
                f"LAG={self.text}: pace=length takes the length of a row when it begins, and here its weights may "
                "change after that"
            )
        return pipeline

    def _checked_rules(self, demand: Demand) -> dict[str, Any]:
        """Return `rules` with NumPy's numbers as Python's. Raises `UserError` where they are no settings by name."""
        rules = self.rules(demand)
        if not isinstance(rules, dict):
            raise UserError(f"{self.title()}: rules returns a {type(rules).__name__}, not a dict")
        for name in rules:
            if not isinstance(name, str):
                raise UserError(
                    f"{self.title()}: rules has the name {shorten(repr(name))}, which is not text; the names are those "
                    "of `staleharness pipeline --set`"
                )
        return {name: plain_value(value) for name, value in rules.items()}

    @property
    def online(self) -> bool:
        return self.pace == "length"

    def schedule(self, demand: Demand) -> Schedule:
        if self.online:
            raise UserError(f"LAG={self.text}: pace=length needs the lengths of a run's own rows")
        return self.schedule_by_length(demand, None)

    def schedule_by_length(self, demand: Demand, lengths: Lengths | None) -> Schedule:
        """Return the schedule of `demand.phases` phases, with row times that depend on row lengths.

        `lengths` is called for each group as it begins; None: row times do not depend on length. Raises `UserError`,
        with the simulated time, where the rules of the pipeline starve the trainer.
        """
        try:
            return schedule_of(simulate(self.pipeline(demand), integer(demand.seed, "lag"), lengths))
        except UserError as error:
            raise UserError(f"LAG={self.text}: {error} (s stands for training steps)") from error

    def bound(self, demand: Demand) -> int | None:
        rules = self._checked_rules(demand)
        limits = [rules[name] for name in ("cap", "max_lag") if rules.get(name) is not None]
        if "max_lag" in rules and (rules.get("cap_version") == "taken" or rules.get("cap_counts") == "finished"):
            limits = [rules["max_lag"]]  # such a cap bounds the groups in flight or queued, not lag
        elif rules.get("cap_version") == "trainer":
            limits = [limit + rules.get("sync_every", 1) - 1 for limit in limits]  # the version in the slots is older
        # a group may begin while fewer than version + 1 + limit batches have begun: the last one's lag is ⌈limit⌉
        return math.ceil(min(limits) - 1e-9) if limits else None

    def probabilities(self, phase: int, capacity: int) -> dict[int, float]:
        raise UserError(
            f"LAG={self.text} has no probabilities of versions, which a simulation decides; density=mixture needs a "
            "model that draws them, such as uniform"
        )


def rows_of(batches: float, demand: Demand) -> int:
    """Return the number of rows in `batches`, rounded to whole groups, at least one."""
    return max(1, round(min(batches, MAX_BATCHES) * demand.groups)) * demand.rows


def stale_rules(max_lag: int, on_stale: OnStale, stop: bool = False) -> dict[str, Any]:
    """Return the settings for rows older than `max_lag`; −1: no bound.

    With `withhold`, no row becomes too old: it begins only when it can be trained on in time, and the trainer waits for
    the oldest row. `stop`: groups in flight that are too old are aborted.
    """
    if max_lag < 0:
        return {}
    if on_stale == "withhold":
        return {"cap": float(max_lag), "order": "submitted"}
    rules = {"drop_group": "drop", "drop_sample": "drop_row", "mask_tokens": "mask", "requeue": "recycle"}
    stop_rule = {"stop": True} if stop and on_stale in ("drop_group", "requeue") else {}
    return {"max_lag": max_lag, "stale": rules[on_stale], **stop_rule}
