"""Systems whose buffer of finished rows decides which rows are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from staleharness.lag import LAGS, option
from staleharness.pipeline_lag_model import OnStale, PipelineLag, stale_rules
from staleharness.rollout_schedule import Demand


@LAGS.register("laminar")
@dataclass(frozen=True)
class Laminar(PipelineLag):
    """Each row is generated with the weights that were newest when it began, and nothing bounds its lag.

    A row keeps its weights to its end, and relays provide the newest ones when the next row begins. Finished groups
    wait in a buffer of `buffer` batches, which holds generation back when it is full.

    Leaves out: rollouts that generate several groups and fetch weights only when all are finished; repacking of long
    rows onto fewer machines; and sampling from the buffer by freshness.
    """

    paper = "Laminar, arXiv 2510.12633"

    buffer: float = option(1.0, least=1, unit="batch")  # batches

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"capacity": self.buffer}


@LAGS.register("rllib_impala")
@dataclass(frozen=True)
class RLlibIMPALA(PipelineLag):
    """Short queue of batches that drops its oldest batch when full.

    Rows are generated with the weights that were newest when they began, and fill batches in the order in which they
    finish. The learner takes the oldest waiting batch; when `learner_queue_size` batches wait, a new one replaces the
    oldest. Weights are sent every `broadcast_interval` steps.

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
    """Circular buffer of batches, from which the learner draws at random.

    Rows are generated with the weights that were newest when they began, and fill batches in the order in which they
    finish. Of the last `circular_buffer_num_batches` batches, the learner draws uniformly from those that it has taken
    fewer than `circular_buffer_iterations_per_batch` times. A batch that leaves the buffer before its first use is
    dropped. Weights are sent every `broadcast_interval` steps.

    Leaves out: the target network, which belongs to the method. With more than one iteration, a run cannot begin with
    on-policy phases (`fill_phases`).
    """

    paper = "IMPACT, arXiv 1912.00167; ray-project/ray at 0f93eac, appo/utils.py and appo.py of RLlib"

    circular_buffer_num_batches: int = option(4, least=1, unit="batch")  # batches
    circular_buffer_iterations_per_batch: int = option(2, least=1, unit="step")  # steps that may train on one batch
    broadcast_interval: int = option(1, least=1, unit="step")  # steps

    def rules(self, demand: Demand) -> dict[str, Any]:
        ring = {"capacity": float(self.circular_buffer_num_batches), "full": "drop_oldest", "holds": "batches"}
        draw = {"order": "random", "uses": self.circular_buffer_iterations_per_batch}
        return ring | draw | {"sync_every": self.broadcast_interval}


@LAGS.register("sample_factory")
@dataclass(frozen=True)
class SampleFactory(PipelineLag):
    """Actors run with the newest weights until the learner has enough batches.

    Actions always come from the newest weights, so weights may change within a row. While `num_batches_to_accumulate`
    batches wait or train, all actors pause. Decisions that are at least `max_lag` phases old when training on their
    batch begins are left out of the loss.

    Leaves out: lag in gradient steps, the unit in which Sample Factory counts (its `max_policy_lag` is 1000 of them);
    weights from the middle of a phase; and the two halves of an actor's environments, which take turns.
    """

    paper = "Sample Factory, arXiv 2006.11751; alex-petrenko/sample-factory algo/learning at 1894bd1"

    num_batches_to_accumulate: int = option(2, least=1, unit="batch")  # batches
    max_lag: int = -1  # phases; -1: no bound

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("max_lag", self.max_lag == -1 or self.max_lag >= 1, "1 or above, or -1")

    def rules(self, demand: Demand) -> dict[str, Any]:
        queue = {"capacity": float(self.num_batches_to_accumulate), "full": "pause", "in_flight": "switch"}
        return queue | (stale_rules(self.max_lag - 1, "mask_tokens") if self.max_lag > 0 else {})


@LAGS.register("pipeline_rl")
@dataclass(frozen=True)
class PipelineRL(PipelineLag):
    """In-flight weight updates, with an optional bound on lag.

    In-flight rows switch to new weights every `weight_update_interval` steps. Without a `max_lag`, generation is never
    held back: the lag of a row's first decision follows from the time that the row takes, and only the newest `buffer`
    batches of finished groups are kept. With a `max_lag`, a group may begin while fewer than (version + max_lag +
    weight_update_interval) batches have begun, and nothing is dropped; where this binds, the mean lag is max_lag +
    (weight_update_interval − 1)/2, and slow rows exceed it.

    Leaves out: lag in samples, the unit in which PipelineRL counts; slots that slow down as more rows share a machine;
    a ring of less than one batch; and batches handed to the trainer ahead of time (`max_ready_samples_per_lead`).
    """

    paper = "PipelineRL, arXiv 2509.19128; ServiceNow/PipelineRL actor.py and preprocess.py at 58d3934, 2026-06"

    max_lag: int = -1  # versions; -1: no bound
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
    """Buffer of groups, with four samplers that choose which of them are trained on.

    `in_order` trains on batches in the order of submission. `weight_fifo` takes the groups with the oldest weights
    first, and waits for them. `ready_first` takes finished groups in the order in which they began, and drops none.
    With these three, generation runs at most `max_staleness` steps ahead. `windowed` takes groups in the same order as
    `ready_first`; it begins groups while fewer than `buffered` batches are in flight or waiting, and drops groups that
    are more than `max_staleness` versions old, finished or not.

    Leaves out: freshest-first, and streaming of partial batches.
    """

    paper = "NVIDIA-NeMo/RL staleness_sampler.py and single_controller.py at 7ea279a, 2026-08"

    max_staleness: int = option(1, least=0)  # versions
    sampler: Literal["in_order", "weight_fifo", "ready_first", "windowed"] = "in_order"
    buffered: float = 0.0  # batches in flight or waiting under `windowed`; 0: max_staleness + 2
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
