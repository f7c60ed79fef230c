"""Systems whose buffer of finished rows decides what is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from staleharness.lag import LAGS, option
from staleharness.pipeline_lag import OnStale, PipelineLag, stale_rules
from staleharness.schedule import Demand


@LAGS.register("laminar")
@dataclass(frozen=True)
class Laminar(PipelineLag):
    """Each row is made with the weights that were newest when it began, and nothing bounds its lag.

    A row keeps its weights, and relays have the newest ones ready when the next row begins. Finished groups wait in a
    buffer of `buffer` batches, which holds generation back when it is full.

    Leaves out: repacking of long rows onto fewer machines, and sampling from the buffer by freshness.
    """

    paper = "Laminar, arXiv 2510.12633"

    buffer: float = option(1.0, least=1, unit="batch")  # batches

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"capacity": self.buffer}


@LAGS.register("rllib_appo")
@dataclass(frozen=True)
class RLlibAPPO(PipelineLag):
    """A short queue that throws its oldest batches away.

    Rows are made with the weights that were newest when they began, and wait in a queue of `queue` batches. When it is
    full, the oldest are dropped. Weights are sent every `broadcast_interval` steps.

    Leaves out: replay of batches (`minibatch_buffer_size`), and the target network, which belongs to the method.
    """

    paper = "RLlib (Ray 2.40 and later); pull request 48702"

    queue: float = option(3.0, least=1, unit="batch")  # batches
    broadcast_interval: int = option(1, least=1, unit="step")  # steps

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"capacity": self.queue, "full": "drop_oldest", "sync_every": self.broadcast_interval}


@LAGS.register("sample_factory")
@dataclass(frozen=True)
class SampleFactory(PipelineLag):
    """Actors run with the newest weights until the learner has batches waiting.

    Actions always come from the newest weights, so weights change inside a row. Actors wait when
    `num_batches_to_accumulate` batches are ready; rows older than `max_lag` are dropped.

    Leaves out: lag in gradient steps, which is how Sample Factory counts (`max_policy_lag` is 1000 of those), and
    the two halves of an actor's environments, which take turns.
    """

    paper = "Sample Factory, arXiv 2006.11751; sample-factory 2.x"

    num_batches_to_accumulate: float = option(2.0, least=1, unit="batch")  # batches
    max_lag: int = -1  # phases; -1: any
    on_stale: OnStale = "drop_group"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("max_lag", self.max_lag >= -1, "0 or above, or -1")

    def rules(self, demand: Demand) -> dict[str, Any]:
        queue = {"capacity": self.num_batches_to_accumulate, "in_flight": "switch"}
        return queue | stale_rules(self.max_lag, self.on_stale)


@LAGS.register("pipeline_rl")
@dataclass(frozen=True)
class PipelineRL(PipelineLag):
    """Weights change in flight after every step, and nothing holds generation back.

    Rows take new weights after every step, and none is held back: the lag of a row's first decision follows from the
    time that the row takes. Only the newest `buffer` batches of finished groups are kept, and groups older than
    `max_lag` are dropped.

    Leaves out: lag in samples, which is how PipelineRL counts, and slots that slow down as more rows share a machine.
    """

    paper = "PipelineRL, arXiv 2509.19128; ServiceNow/PipelineRL, 2026-06"

    max_lag: int = -1  # versions; -1: any
    on_stale: OnStale = "drop_group"
    buffer: float = option(1.0, least=1, unit="batch")  # batches
    weight_update_interval: int = option(1, least=1, unit="step")  # steps

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("max_lag", self.max_lag >= -1, "0 or above, or -1")

    def rules(self, demand: Demand) -> dict[str, Any]:
        ring = {"capacity": self.buffer, "full": "drop_oldest"} if self.on_stale != "withhold" else {}
        send = {"in_flight": "switch", "sync_every": self.weight_update_interval}
        return ring | send | stale_rules(self.max_lag, self.on_stale)


@LAGS.register("nemo_rl")
@dataclass(frozen=True)
class NeMoRL(PipelineLag):
    """One buffer of finished groups, and four samplers that say which of them are trained on.

    `in_order` trains each batch as it was submitted, at most `max_staleness` steps ahead. `weight_fifo` takes groups
    with the oldest weights first, and waits for them. `ready_first` takes groups as they finish and throws none away.
    All three hold generation back. `windowed` does not until the buffer is full, and evicts groups that are more than
    `max_staleness` old.

    Leaves out: freshest-first, streaming of parts of a batch, and unfinished rows in the buffer.
    """

    paper = "NVIDIA-NeMo/RL staleness_sampler.py, 2026-08"

    max_staleness: int = option(1, least=0)  # versions
    sampler: Literal["in_order", "weight_fifo", "ready_first", "windowed"] = "in_order"
    buffered: float = 0.0  # batches that the buffer of `windowed` holds; 0: max_staleness + 2
    on_stale: OnStale = "drop_group"  # of `windowed`

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("buffered", self.buffered == 0 or self.buffered >= 1, "at least 1 batch, or 0")

    def rules(self, demand: Demand) -> dict[str, Any]:
        if self.sampler == "windowed":
            capacity = self.buffered or self.max_staleness + 2.0
            return {"capacity": capacity, "in_flight": "switch"} | stale_rules(self.max_staleness, self.on_stale)
        order = {"in_order": "submitted", "weight_fifo": "version", "ready_first": "completed"}[self.sampler]
        return {"cap": float(self.max_staleness), "order": order, "in_flight": "switch"}
