"""Settings of a pipeline, and named presets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..base.options import check_bounds, option
from ..base.typed_values import build
from ..errors import UserError, nearest
from ..rollout_schedule import MAX_ROWS
from .distributions import MAX_VALUE, Constant, Lognormal, read_distribution

MAX_BATCHES = 1e9
"""Largest bound in batches; no run has nearly as many."""


@dataclass(frozen=True)
class Pipeline:
    """Settings of a simulated pipeline.

    A row is one trajectory or completion; a group is the rows of one prompt, trained together; a batch is what the
    trainer takes for one step, after which the policy has a new version. Times are in seconds.

    Slow slots are permanently slow, like workers on other hardware. With unit=group or batch they come in whole units,
    each of which keeps its slots, so that the rows of a group are slow together; otherwise a group may have rows in
    both kinds of slot.
    """

    # Generation
    slots: int = option(64, least=1)  # rows generated at once, over all workers
    workers: int = option(8, least=1)  # workers with equal shares of the slots; each fails alone
    group: int = option(8, least=1)  # rows
    lengths: str = "lognormal[mean=1000,cv=1]"  # decisions of a row
    max_tokens: int | None = option(None, least=1)  # longer rows are cut
    token_seconds: float = option(0.02, least=0, most=MAX_VALUE)  # per decision
    environment: str = "constant:0"  # seconds of a row spent outside of generation, spread over it
    # unit in which slots are handed out and released; backfill: handed out to whole groups, released by rows
    unit: Literal["row", "group", "batch", "backfill"] = "row"
    slow: float = option(0.0, least=0, most=1)  # share of slots that are slow; the last ones
    slow_factor: float = option(1.0, least=1, most=MAX_VALUE)  # time of a row in a slow slot over that in others
    # Admission
    cap: float | None = None  # a group may begin while fewer than version + 1 + cap batches have begun
    cap_counts: Literal["begun", "finished"] = "begun"  # batches that the cap counts
    # version in the rule of `cap`; taken: number of batches taken, in place of version + 1
    cap_version: Literal["slots", "trainer", "taken"] = "slots"
    # The queue of finished groups
    # order in which the trainer takes them
    order: Literal["completed", "began", "submitted", "window", "version", "version_completed", "random"] = "completed"
    window: int = option(1, least=1)  # groups, counted from the oldest one that is not taken
    capacity: float | None = None  # batches
    full: Literal["block", "pause", "drop_oldest", "drop_newest"] = "block"
    holds: Literal["groups", "batches"] = "groups"  # batches: filled as groups finish, taken and dropped as a whole
    uses: int = option(1, least=1)  # steps that may train on one batch, for holds=batches and order=random
    ahead: int | None = option(None, least=0)  # batches assembled before the trainer asks; none: only when it asks
    max_lag: int | None = option(None, least=0)  # versions; older data are not trained on
    # older data: drop the group, generate it again (recycle), drop the row, or mask the decisions; wait: no batch is
    # taken while an unfinished group is as old as max_lag
    stale: Literal["drop", "recycle", "drop_row", "mask", "wait"] = "drop"
    stop: bool = False  # when a step ends, groups under way older than max_lag are aborted
    # The trainer
    batch: int = option(64, least=1)  # rows
    train_seconds: float = option(15.0, least=0, most=MAX_VALUE)  # per step
    train_token_seconds: float = option(0.0, least=0, most=MAX_VALUE)  # in addition, per decision in the step
    # Weight sync
    sync_seconds: float = option(0.0, least=0, most=MAX_VALUE)  # until new weights have arrived
    sync_every: int = option(1, least=1)  # steps
    sync_at: Literal["end", "start"] = "end"  # of the step, or of the next one
    blocking: bool = True  # trainer and generation pause meanwhile
    in_flight: Literal["keep", "switch", "drain"] = "keep"  # rows under way when weights arrive
    recompute_seconds: float = option(
        0.0, least=0, most=MAX_VALUE
    )  # per decision, to rebuild the cache of a row that switches weights
    # Faults
    worker_mtbf: float | None = option(None, above=0)  # seconds between two failures of one worker, on average
    worker_restart: float = option(60.0, least=0, most=MAX_VALUE)
    lost: Literal["again", "continue"] = "again"  # rows of a worker that failed
    trainer_mtbf: float | None = option(None, above=0)  # mean seconds between failures; an interrupted step is repeated
    trainer_restart: float = option(60.0, least=0, most=MAX_VALUE)
    counters: Literal["keep", "forget"] = "keep"  # forget: a restart resets the counts of admission to none under way
    # The run
    steps: int = option(200, least=1)

    def __post_init__(self) -> None:
        check_bounds(self)
        self._require("cap", self.cap is None or self.cap > -1, "above -1, or none")
        self._require("capacity", self.capacity is None or self.capacity >= 1, "at least 1 batch, or none")
        for name in ("cap", "capacity"):
            self._require(name, (getattr(self, name) or 0) <= MAX_BATCHES, f"at most {MAX_BATCHES:g}, or none")
        self._require("slots", self.slots <= MAX_ROWS, f"at most {MAX_ROWS}")
        self._require("batch", self.batch % self.group == 0, f"a multiple of group={self.group}")
        self._require("slots", self.slots >= self.unit_rows, f"at least one {self.unit} of {self.unit_rows}")
        self._require("workers", self.workers <= self.slots, f"at most one a slot ({self.slots})")
        self._require("steps", self.steps * self.batch <= MAX_ROWS, f"at most {MAX_ROWS // self.batch}")
        if self.full == "drop_oldest" and self.holds == "groups" and self.order != "completed":
            raise UserError(f"full=drop_oldest needs order=completed, not {self.order}")
        if self.holds == "batches" and (self.full != "drop_oldest" or self.order not in ("completed", "random")):
            raise UserError("holds=batches needs full=drop_oldest, and order=completed or random")
        if self.order == "random" and self.holds != "batches":
            raise UserError("order=random needs holds=batches")
        if self.uses > 1 and self.order != "random":
            raise UserError(f"uses={self.uses} needs order=random, not {self.order}")
        if self.ahead is not None and (self.holds == "batches" or self.full == "pause"):
            raise UserError("ahead needs holds=groups, and not full=pause")
        if self.capacity is None and self.full != "block":
            raise UserError(f"full={self.full} needs a capacity")
        if self.window > 1 and self.order != "window":
            raise UserError(f"window={self.window} needs order=window, not {self.order}")
        if self.stale == "wait" and self.max_lag is None:
            raise UserError("stale=wait needs a max_lag")
        if self.holds == "batches" and self.max_lag is not None and self.stale not in ("drop_row", "mask"):
            raise UserError(f"max_lag with holds=batches needs stale=drop_row or mask, not {self.stale}")
        if self.stop and (self.max_lag is None or self.stale not in ("drop", "recycle")):
            raise UserError("stop=true needs a max_lag, and stale=drop or recycle")
        if (self.slow > 0) != (self.slow_factor > 1):
            raise UserError("slow, above 0, and slow_factor, above 1, go together")
        if self.slow:
            size = self.return_rows
            self._require("slots", self.slots % size == 0, f"a multiple of {size} where some are slow")
            is_partial = self.slow_slots > 0 and (self.slow_slots < self.slots or self.slow == 1)
            self._require(
                "slow", is_partial, f"enough for some but not all of {self.slots // size} units of {size} slots, or 1"
            )
        if self.worker_mtbf is not None and self.unit != "row":
            raise UserError(f"worker_mtbf needs unit=row, not {self.unit}")
        lengths = read_distribution(self.lengths, "lengths")
        mean = {Constant: "value", Lognormal: "mean"}.get(type(lengths))
        if mean is not None and getattr(lengths, mean) < 1:
            raise UserError(f"lengths={self.lengths}: a row has at least one decision; give a {mean} of at least 1")
        environment = read_distribution(self.environment, "environment")
        if not self.token_seconds and environment == Constant(0.0):
            raise UserError("a row takes no time: token_seconds or environment must be above 0")

    @property
    def groups(self) -> int:
        """Number of groups in a batch."""
        return self.batch // self.group

    @property
    def unit_rows(self) -> int:
        """Number of rows in the unit in which slots are handed out."""
        return {"row": 1, "group": self.group, "batch": self.batch, "backfill": self.group}[self.unit]

    @property
    def return_rows(self) -> int:
        """Number of rows in the unit in which slots are released."""
        return 1 if self.unit == "backfill" else self.unit_rows

    @property
    def slow_slots(self) -> int:
        """Number of slow slots, rounded to whole units."""
        return round(self.slow * (self.slots // self.return_rows)) * self.return_rows

    def with_settings(self, values: Mapping[str, Any], where: str = "SET") -> Pipeline:
        """Return the pipeline with other values of some settings. Raises `UserError` for a bad name or value."""
        return build(Pipeline, {**asdict(self), **values}, where)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def _require(self, name: str, holds: bool, condition: str) -> None:
        if not holds:
            raise UserError(f"{name} must be {condition}, not {getattr(self, name)}")


PRESETS: Mapping[str, Mapping[str, Any]] = {
    # Each batch is generated with the weights that it then trains, so generation and training alternate.
    "sync": {"cap": 0.0, "order": "submitted"},
    # The next batch is generated while this one trains: every row is one version behind.
    "one-step-off": {"cap": 1.0, "unit": "batch", "order": "submitted"},
    # Rows begin as soon as a slot is free, and finish with the weights that they began with.
    "async": {"cap": 4.0, "blocking": False},
    # The same, but rows under way switch to new weights as they arrive, and rebuild their cache.
    "in-flight": {"cap": 4.0, "blocking": False, "in_flight": "switch", "recompute_seconds": 2e-4},
}


def preset(name: str, values: Mapping[str, Any] | None = None) -> Pipeline:
    """Return the pipeline called `name`, with other values of some settings. Raises `UserError`."""
    if name not in PRESETS:
        raise UserError(f"no preset is called {name!r}; {nearest(name, PRESETS)}")
    return Pipeline().with_settings({**PRESETS[name], **(values or {})})
