"""Systems that generate whole batches, a number of steps ahead of the trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from staleharness.lag import LAGS, option
from staleharness.pipeline_lag_model import PipelineLag, rows_of
from staleharness.rollout_schedule import Demand

ONE_BATCH_AHEAD = {"unit": "batch", "cap": 1.0, "order": "submitted"}


@LAGS.register("cleanba")
@dataclass(frozen=True)
class Cleanba(PipelineLag):
    """Always one version behind, except for the first batch.

    The actor skips the weight fetch before its second rollout, and the queue between actor and learner holds one
    rollout.

    Leaves out: several actor threads, whose rollouts reach the learner together.
    """

    paper = "Cleanba, arXiv 2310.00036; vwxyzjn/cleanba cleanba_ppo.py at d1f8979"

    def rules(self, demand: Demand) -> dict[str, Any]:
        return dict(ONE_BATCH_AHEAD)


@LAGS.register("verl_one_step_off")
@dataclass(frozen=True)
class VerlOneStepOff(PipelineLag):
    """Always one version behind, except for the first batch.

    When training on a batch begins, generation takes the newest weights and generates all of the next batch with them.

    Leaves out: nothing that affects lag; `slots`, `row_time` and `cv` affect only time.
    """

    paper = "verl-project/verl experimental/one_step_off_policy at 1dda039, 2026-08"

    def rules(self, demand: Demand) -> dict[str, Any]:
        return dict(ONE_BATCH_AHEAD)


@LAGS.register("llamarl")
@dataclass(frozen=True)
class LlamaRL(PipelineLag):
    """Whole batches, always `delay` versions behind once that many have passed.

    (1 + delay) batches are generated at once, each with one version, and trained on in order.

    Leaves out: a generator that is too slow for the delay, which would lag less.
    """

    paper = "LlamaRL, arXiv 2505.24034"

    delay: int = option(2, least=0)  # versions

    def rules(self, demand: Demand) -> dict[str, Any]:
        slots = rows_of(1 + self.delay, demand)
        return {"unit": "batch", "cap": float(self.delay), "order": "submitted", "slots": slots}


@LAGS.register("slime")
@dataclass(frozen=True)
class Slime(PipelineLag):
    """One batch ahead of the trainer, with weights sent every few steps.

    The next batch is generated while this one trains. Weights are sent every `update_weights_interval` steps, once the
    batch being generated is finished. The lag of a batch cycles through 1 to `update_weights_interval`.

    Leaves out: the fully asynchronous example, which has no rule about lag, and partial rollouts (see `partial`).
    """

    paper = "THUDM/slime train_async.py at 624b824, 2026-08"

    update_weights_interval: int = option(1, least=1, unit="step")  # steps

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {
            **ONE_BATCH_AHEAD,
            "cap_version": "trainer",
            "sync_every": self.update_weights_interval,
            "in_flight": "drain",
            "blocking": True,
        }


@LAGS.register("openrlhf_async")
@dataclass(frozen=True)
class OpenRLHFAsync(PipelineLag):
    """Whole batches, as many ahead of the trainer as its queue holds.

    One batch is generated at a time, and begins while fewer than `async_queue_size` batches wait. New weights, and with
    them the trainer, wait until the batch being generated is finished; with `partial_rollout`, its rows switch to them
    at once.

    Leaves out: dynamic filtering, and evaluations, during which nothing is generated.
    """

    paper = "OpenRLHF/OpenRLHF ppo_trainer_async.py at 3c3be62, 2026-08"

    async_queue_size: int = option(1, least=1, unit="batch")  # batches
    partial_rollout: bool = False

    def rules(self, demand: Demand) -> dict[str, Any]:
        gate = {"unit": "batch", "slots": rows_of(1.0, demand), "cap": float(self.async_queue_size)}
        send = {"in_flight": "switch" if self.partial_rollout else "drain", "blocking": not self.partial_rollout}
        return {"order": "submitted", **gate, **send}


@LAGS.register("megatron")
@dataclass(frozen=True)
class Megatron(PipelineLag):
    """Rows submitted and consumed in units of rows, groups or batches.

    (1 + lag) batches are in flight, submitted in units of rows (R), groups (G) or batches (B); in-flight rows switch to
    new weights. With `consume=B`, batches are taken whole, in the order of submission, and groups and batches keep
    their places until then. In the notation submit/consume, B/B and G/B are at most `lag` versions behind (rounded up)
    at their first decision. G/G is about (1 + lag) behind on average; R/G multiplies that by a group's tail: the mean
    time of its longest row over that of a row. R/B lags more than the published formula.

    Leaves out: training time, because inference is suspended meanwhile, so that of the rows' timing only `cv` matters;
    and automatic tuning of `lag`.
    """

    paper = "NVIDIA/Megatron-LM megatron/rl/agent/rollout_pipeline.py at d98e8a6, 2026-08"

    lag: float = option(1.0, least=-1, most=1000)  # batches in flight beyond the first
    submit: Literal["R", "G", "B"] = "B"
    consume: Literal["G", "B"] = "B"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("consume", self.submit != "B" or self.consume == "B", "B where submit is B")
        waits = self.submit == "G" and self.consume == "B"
        self.require("lag", not waits or self.lag >= 0, "0 or above where groups keep their place until a whole batch")

    def rules(self, demand: Demand) -> dict[str, Any]:
        unit = {"R": "row", "G": "group", "B": "batch"}[self.submit]
        rows = {"R": 1, "G": demand.rows, "B": demand.groups * demand.rows}[self.submit]
        tasks = max(1, round((1 + self.lag) * demand.groups * demand.rows / rows))
        holds = self.consume == "B" and self.submit != "R"
        cap = {"cap": tasks * rows / (demand.groups * demand.rows) - 1} if holds else {}
        order = "submitted" if self.consume == "B" else "completed"
        gate = {"unit": unit, "slots": tasks * rows, "order": order, **cap}
        return {**gate, "train_seconds": 0.0, "blocking": True, "in_flight": "switch"}
