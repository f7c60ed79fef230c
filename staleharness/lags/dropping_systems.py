"""Systems that drop groups that have become too old."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from staleharness.lag import LAGS, option
from staleharness.pipeline_lag_model import PipelineLag, rows_of, stale_rules
from staleharness.rollout_schedule import Demand


@LAGS.register("trl_async_grpo")
@dataclass(frozen=True)
class TRLAsyncGRPO(PipelineLag):
    """Rows of `max_staleness` batches in flight, and a queue from which stale groups are dropped.

    Rows begin one by one, and switch in flight to new weights, which are sent every `weight_sync_steps` steps. The
    version of a group is the one with which its first row began. Finished groups wait in a queue of `queue_maxsize`
    rows. A group that is more than `max_staleness` syncs old when its turn comes is dropped.

    Leaves out: batches that the data loader fetches ahead of the step, and the queue before the rewards.
    """

    paper = "huggingface/trl experimental/async_grpo at f2cd577, 2026-07"

    max_staleness: int = option(4, least=1)  # syncs
    queue_maxsize: int = option(1024, least=1)  # rows
    weight_sync_steps: int = option(1, least=1, unit="step")  # steps

    def rules(self, demand: Demand) -> dict[str, Any]:
        # A group begins with a version that is a multiple of s, so it is stale where floor(lag/s) > m
        oldest = (self.max_staleness + 1) * self.weight_sync_steps - 1
        return {
            "unit": "row",
            "slots": rows_of(self.max_staleness, demand),
            "capacity": max(1.0, self.queue_maxsize / (demand.groups * demand.rows)),
            "in_flight": "switch",
            "sync_every": self.weight_sync_steps,
            **stale_rules(oldest, "drop_group"),
        }


@LAGS.register("verl_v1")
@dataclass(frozen=True)
class VerlV1(PipelineLag):
    """One batch of prompts per step, some sent in advance, and a replay buffer that drops stale groups or waits.

    A group may begin while fewer than (version + 1 + num_warmup_batches) batches have begun. Of the finished groups,
    the trainer takes those that began first; in-flight rows switch to new weights. With `drop`, a finished group that
    is at least `max_off_policy_threshold` versions old is replaced by a new one. With `wait`, no batch is taken while a
    group in flight would then become that old, so nothing is dropped.

    Leaves out: mini-batches that are trained on as they arrive (`parameter_sync_step`), filters of groups, and trainers
    that help to generate. verl assigns a prompt to the step in which it is sent, even if it waits for a machine; this
    model assigns it to the step in which it begins.
    """

    paper = "verl-project/verl trainer/ppo/v1 at 1dda039, 2026-08"

    max_off_policy_threshold: int = option(8, least=1)  # versions
    max_off_policy_strategy: Literal["drop", "wait"] = "drop"
    num_warmup_batches: int = option(1, least=0, unit="batch")  # batches

    def rules(self, demand: Demand) -> dict[str, Any]:
        bound = {"max_lag": self.max_off_policy_threshold - 1, "stale": self.max_off_policy_strategy}
        return {"cap": float(self.num_warmup_batches), "order": "began", "in_flight": "switch", **bound}


@LAGS.register("miles")
@dataclass(frozen=True)
class Miles(PipelineLag):
    """Constant number of rows in flight, and a buffer of groups from which each step assembles the next batch.

    `concurrent` batches are in flight: a group begins when as many rows as it needs have finished, or, with
    `granularity=group`, when a whole group has. A buffer of `buffer` batches holds generation back when it is full.
    The next batch is assembled during a step, without groups then more than `max_weight_staleness` versions old;
    groups are one version older when trained on. New weights are sent only once that batch is complete;
    in-flight rows switch to them.

    Leaves out: `update_weights_interval`, aborted groups, and filters.
    """

    paper = "radixark/miles fully_async_rollout.py and train_async.py at 31f1ca9, 2026-08"

    max_weight_staleness: int = -1  # versions; -1: no bound
    on_stale: Literal["drop_group", "requeue"] = "drop_group"
    buffer: float = option(2.0, least=1, unit="batch")  # batches
    concurrent: float = option(1.0, above=0, unit="batch")  # batches
    granularity: Literal["sample", "group"] = "sample"  # of submission

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("max_weight_staleness", self.max_weight_staleness >= -1, "0 or above, or -1")

    def rules(self, demand: Demand) -> dict[str, Any]:
        stale = stale_rules(self.max_weight_staleness + 1, self.on_stale) if self.max_weight_staleness >= 0 else {}
        unit = "backfill" if self.granularity == "sample" else "group"
        queue = {"unit": unit, "slots": rows_of(self.concurrent, demand), "capacity": self.buffer, "ahead": 0}
        return queue | {"in_flight": "switch", "sync_at": "start", **stale}


@LAGS.register("open_instruct")
@dataclass(frozen=True)
class OpenInstruct(PipelineLag):
    """Constant number of outstanding prompts, and batches assembled ahead of the trainer.

    `async_steps` batches of prompts are outstanding; a prompt is replaced when its group joins a batch or is dropped.
    Batches are assembled as groups finish, `async_steps` ahead of the trainer, without groups more than `async_steps`
    versions old at the step that would train on them. In-flight rows switch to new weights (`inflight_updates`), or
    finish first.

    Leaves out: filters of groups. open-instruct dates a group from when it is sent to a machine; this model, from when
    it begins.
    """

    paper = "allenai/open-instruct data_loader.py at e6c3044, 2026-08"

    async_steps: int = option(8, least=1)  # steps
    inflight_updates: bool = True

    def rules(self, demand: Demand) -> dict[str, Any]:
        gate = {"cap": float(self.async_steps), "cap_version": "taken", "ahead": self.async_steps - 1}
        send = {"in_flight": "switch" if self.inflight_updates else "drain", "blocking": not self.inflight_updates}
        return gate | send | stale_rules(self.async_steps, "drop_group")


@LAGS.register("tinker")
@dataclass(frozen=True)
class Tinker(PipelineLag):
    """One batch of groups in flight, which never waits for the trainer; stale groups are generated again or dropped.

    Each group keeps the weights that were newest when it began. Groups are taken in the order in which they finish;
    those more than `max_steps_off_policy` steps old are generated again, or dropped. With a `pipeline_depth` (pull
    request 822, not merged; modelled from its description) generation runs at most that many steps ahead and nothing is
    discarded: no batch is taken while a group in flight would then become too old.

    Leaves out: streamed mini-batches, and the order in which discarded prompts are sent again: at once in this model,
    but behind a batch of other prompts in Tinker, whose mean lag is up to 0.15 steps higher under the tests' loads.
    """

    paper = "thinking-machines-lab/tinker-cookbook rl/train.py at 9dfcc3a, 2026-08"

    max_steps_off_policy: int = option(4, least=0)  # steps
    on_stale: Literal["requeue", "drop_group"] = "requeue"
    pipeline_depth: int = option(-1, least=-1)  # steps ahead; -1: no limit, and stale groups are discarded

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = self.max_steps_off_policy
        self.require("pipeline_depth", self.pipeline_depth <= limit, f"at most max_steps_off_policy={limit}")

    def rules(self, demand: Demand) -> dict[str, Any]:
        if self.pipeline_depth >= 0:
            wait = {"max_lag": self.max_steps_off_policy, "stale": "wait", "order": "began"}
            return {"slots": rows_of(1.0 + self.pipeline_depth, demand), "cap": float(self.pipeline_depth), **wait}
        return {"slots": rows_of(1.0, demand), **stale_rules(self.max_steps_off_policy, self.on_stale)}
