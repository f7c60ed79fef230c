"""Systems whose buffer of finished rows decides what is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from staleharness.lag import LAGS, option
from staleharness.pipeline_lag_model import OnStale, PipelineLag, stale_rules
from staleharness.rollout_schedule import Demand


@LAGS.register("laminar")
@dataclass(frozen=True)
class Laminar(PipelineLag):
    """Each row is made with the weights that were newest when it began, and nothing bounds its lag.

    A row keeps its weights, and relays have the newest ones ready when the next row begins. Finished groups wait in a
    buffer of `buffer` batches, which holds generation back when it is full.

    Leaves out: rollouts that generate several groups, whose weights are fetched when all are finished; repacking of
    long rows onto fewer machines; and sampling from the buffer by freshness.
    """

    paper = "Laminar, arXiv 2510.12633"

    buffer: float = option(1.0, least=1, unit="batch")  # batches

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"capacity": self.buffer}


@LAGS.register("rllib_impala")
@dataclass(frozen=True)
class RLlibIMPALA(PipelineLag):
    """A short queue of batches that throws its oldest one away.

    Rows are made with the weights that were newest when they began, and make up batches as they finish. The learner
    takes the oldest of those that wait; where `learner_queue_size` wait, a new one drops the oldest. Weights are sent
    every `broadcast_interval` steps.

    Leaves out: replay of batches.
    """

    paper = "IMPALA, arXiv 1802.01561; ray-project/ray rllib/algorithms/impala/impala_learner.py at 0007f83"

    learner_queue_size: int = option(3, least=1, unit="batch")  # batches
    broadcast_interval: int = option(1, least=1, unit="step")  # steps

    def rules(self, demand: Demand) -> dict[str, Any]:
        queue = {"capacity": float(self.learner_queue_size), "full": "drop_oldest", "holds": "batches"}
        return queue | {"sync_every": self.broadcast_interval}


@LAGS.register("rllib_appo")
@dataclass(frozen=True)
class RLlibAPPO(PipelineLag):
    """A circular buffer of batches, any of which the learner may take.

    Rows are made with the weights that were newest when they began, and make up batches as they finish. The learner
    takes each of the last `circular_buffer_num_batches` that it has taken fewer than
    `circular_buffer_iterations_per_batch` times with the same probability; one that falls out before it is taken at all
    is dropped. Weights are sent every `broadcast_interval` steps.

    Leaves out: the target network, which belongs to the method. With more than one iteration, a run cannot begin with
    phases of fresh data (`fill_phases`).
    """

    paper = "IMPACT, arXiv 1912.00167; ray-project/ray at 0f93eac, appo/utils.py and appo.py of RLlib"

    circular_buffer_num_batches: int = option(4, least=1, unit="batch")  # batches
    circular_buffer_iterations_per_batch: int = option(2, least=1, unit="step")  # steps that may train on a batch
    broadcast_interval: int = option(1, least=1, unit="step")  # steps

    def rules(self, demand: Demand) -> dict[str, Any]:
        ring = {"capacity": float(self.circular_buffer_num_batches), "full": "drop_oldest", "holds": "batches"}
        draw = {"order": "random", "uses": self.circular_buffer_iterations_per_batch}
        return ring | draw | {"sync_every": self.broadcast_interval}


@LAGS.register("sample_factory")
@dataclass(frozen=True)
class SampleFactory(PipelineLag):
    """Actors run with the newest weights until the learner has batches enough.

    Actions always come from the newest weights, so weights change inside a row. While `num_batches_to_accumulate`
    batches wait or train, all actors stand still. Decisions that are `max_lag` phases old or older when their batch
    begins to train are left out of the loss.

    Leaves out: lag in gradient steps, which is how Sample Factory counts (`max_policy_lag` is 1000 of those), weights
    from the middle of a phase, and the two halves of an actor's environments, which take turns.
    """

    paper = "Sample Factory, arXiv 2006.11751; alex-petrenko/sample-factory algo/learning at 1894bd1"

    num_batches_to_accumulate: int = option(2, least=1, unit="batch")  # batches
    max_lag: int = -1  # phases; -1: any

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("max_lag", self.max_lag == -1 or self.max_lag >= 1, "1 or above, or -1")

    def rules(self, demand: Demand) -> dict[str, Any]:
        queue = {"capacity": float(self.num_batches_to_accumulate), "full": "pause", "in_flight": "switch"}
        return queue | (stale_rules(self.max_lag - 1, "mask_tokens") if self.max_lag > 0 else {})


@LAGS.register("pipeline_rl")
@dataclass(frozen=True)
class PipelineRL(PipelineLag):
    """Weights change in flight after every step, and only a `max_lag` holds generation back.

    Rows take new weights after every step. Without a `max_lag` none is held back: the lag of a row's first decision
    follows from the time that the row takes, and only the newest `buffer` batches of finished groups are kept. With a
    bound, a group may begin while fewer than (version + 1 + max_lag) batches have begun, and nothing is dropped; where
    that binds it is the mean lag, which a slow row exceeds.

    Leaves out: lag in samples, which is how PipelineRL counts, slots that slow down as more rows share a machine, a
    ring of less than a batch, and batches handed to the trainer ahead of time (`max_ready_samples_per_lead`).
    """

    paper = "PipelineRL, arXiv 2509.19128; ServiceNow/PipelineRL actor.py and preprocess.py at 58d3934, 2026-06"

    max_lag: int = -1  # versions; -1: any
    buffer: float = option(1.0, least=1, unit="batch")  # batches
    weight_update_interval: int = option(1, least=1, unit="step")  # steps

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("max_lag", self.max_lag >= -1, "0 or above, or -1")

    def rules(self, demand: Demand) -> dict[str, Any]:
        send = {"in_flight": "switch", "sync_every": self.weight_update_interval}
        if self.max_lag >= 0:
            return send | {"cap": float(self.max_lag + self.weight_update_interval - 1)}
        return send | {"capacity": self.buffer, "full": "drop_oldest"}


@LAGS.register("nemo_rl")
@dataclass(frozen=True)
class NeMoRL(PipelineLag):
    """One buffer of groups, and four samplers that say which of them are trained on.

    `in_order` trains each batch as it was submitted, at most `max_staleness` steps ahead. `weight_fifo` takes groups
    with the oldest weights first, and waits for them. `ready_first` takes those that are finished, in the order in
    which they began, and throws none away. All three hold generation back. `windowed` takes them like that, too; it
    begins groups while fewer than `buffered` batches are under way or wait, and drops what is more than `max_staleness`
    old, under way or not.

    Leaves out: freshest-first, and streaming of parts of a batch.
    """

    paper = "NVIDIA-NeMo/RL staleness_sampler.py and single_controller.py at 7ea279a, 2026-08"

    max_staleness: int = option(1, least=0)  # versions
    sampler: Literal["in_order", "weight_fifo", "ready_first", "windowed"] = "in_order"
    buffered: float = 0.0  # batches of `windowed` that are under way or wait; 0: max_staleness + 2
    on_stale: OnStale = "drop_group"  # of `windowed`

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("buffered", self.buffered == 0 or self.buffered >= 1, "at least 1 batch, or 0")

    def rules(self, demand: Demand) -> dict[str, Any]:
        if self.sampler == "windowed":
            gate = {"cap": self.buffered or self.max_staleness + 2.0, "cap_version": "taken", "order": "began"}
            return gate | {"in_flight": "switch"} | stale_rules(self.max_staleness, self.on_stale, stop=True)
        order = {"in_order": "submitted", "weight_fifo": "version", "ready_first": "began"}[self.sampler]
        return {"cap": float(self.max_staleness), "order": order, "in_flight": "switch"}
