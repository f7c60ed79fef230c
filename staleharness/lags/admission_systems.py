"""Systems that bound how far generation may run ahead of the trainer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from staleharness.lag import LAGS, option
from staleharness.pipeline_lag_model import OnStale, PipelineLag, rows_of, stale_rules
from staleharness.rollout_schedule import Demand


@LAGS.register("areal")
@dataclass(frozen=True)
class AReaL(PipelineLag):
    """Admission by a bound on staleness; in-flight rows switch to new weights.

    A group may begin while fewer than (version + 1 + eta) batches have begun (`max_head_offpolicyness`). This bounds
    the number of groups in flight or queued, and so the mean lag: where the bound binds, the mean lag is eta. It does
    not bound single rows: others overtake a slow row, which ages by one version with each batch that they fill. K must
    cover the oldest row. Of the finished groups, the trainer takes those that began first.

    Leaves out: rebuilding the KV cache of a row that switches weights, and `should_accept_fn`.
    """

    paper = "AReaL, arXiv 2505.24298; inclusionAI/AReaL workflow_executor.py at 4aef98d, 2026-05"

    longest: ClassVar[str] = "eta bounds the mean lag; a slow row is passed by others, and older"

    eta: float = option(4.0, least=0)  # versions; bounds the mean lag
    interruptible: bool = True  # in-flight rows switch to new weights

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"cap": self.eta, "order": "began", "in_flight": "switch" if self.interruptible else "keep"}


@LAGS.register("skyrl")
@dataclass(frozen=True)
class SkyRL(PipelineLag):
    """Admission by a bound on groups in flight or queued; groups of any age are trained on.

    A group may begin while fewer than (version + 1 + max_staleness_steps) batches have begun; in-flight rows switch
    to new weights. Where the bound binds, it equals the mean lag. SkyRL warns about groups above the bound, but trains
    on them.

    Leaves out: `sample_full_batch`, which replaces groups whose rewards are all equal.
    """

    paper = "NovaSky-AI/SkyRL fully_async_trainer.py at a956457, 2026-08"

    max_staleness_steps: int = option(4, least=0)  # versions

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"cap": float(self.max_staleness_steps), "in_flight": "switch"}


@LAGS.register("windowed_fifo")
@dataclass(frozen=True)
class WindowedFifo(PipelineLag):
    """Order of submission, except that a window of later groups may overtake a slow one.

    A group may begin while fewer than (version + 1 + staleness) batches have begun. The trainer takes finished groups
    from a window that begins with the oldest group not yet taken; `window` is its size, as a share of all groups that
    may be in flight or queued. No group is older than staleness + ⌈(W − 1)/P⌉, with W groups in the window and P in a
    batch; a window of 0 is strict order. Up to two batches are assembled ahead of the trainer. In-flight rows switch to
    new weights.

    Leaves out: nothing that affects lag.
    """

    paper = "pytorch/torchtitan experiments/rl at b5bcd76, 2026-08; MiniMax, arXiv 2605.26494"

    staleness: int = option(2, least=0)  # versions
    window: float = option(0.3, least=0, most=1)  # share of (staleness + 1) batches

    def rules(self, demand: Demand) -> dict[str, Any]:
        window = max(1, int(self.window * (self.staleness + 1) * demand.groups))
        take = {"order": "window", "window": window, "ahead": 1}
        return {"cap": float(self.staleness), "in_flight": "switch", **take}


@LAGS.register("roll_flash")
@dataclass(frozen=True)
class RollFlash(PipelineLag):
    """Groups taken in the order of the versions that began them, with a fixed number of batches ahead of the trainer.

    A group may begin while fewer than (version + 1 + async_generation_ratio) batches have begun. The trainer takes
    groups of the oldest version first and waits for them, so the mean lag equals the ratio: with 1.5, half of a batch
    is 2 versions old and half is 1. In-flight rows switch to new weights, and nothing is ever dropped.

    Leaves out: additional prompts (`is_use_additional_prompts`, whose surplus is aborted) and queues by expected
    length. ROLL assigns a prompt to the step in which it is sent, even if it waits for a machine; this model assigns it
    to the step in which it begins.
    """

    paper = "ROLL Flash, arXiv 2510.11345; alibaba/ROLL generate_scheduler.py at 8eb27cc, 2026-08"

    async_generation_ratio: float = option(2.0, least=0)  # batches

    def rules(self, demand: Demand) -> dict[str, Any]:
        ahead = math.ceil(self.async_generation_ratio * demand.groups) / demand.groups
        return {"cap": ahead, "order": "version_completed", "in_flight": "switch", "blocking": True}


@LAGS.register("prime_rl")
@dataclass(frozen=True)
class PrimeRL(PipelineLag):
    """Gate on the number of batches finished ahead of the trainer, and a bound on the age of a group.

    No group begins while `target_lag` batches are finished beyond the one in training. In-flight rows switch to new
    weights. Batches are assembled as groups finish: up to `target_lag` wait for the trainer, and one more may be
    complete. A group is dropped if it would be more than `max_off_policy_steps` old in the batch being assembled: a
    finished group when it would join the batch, a group in flight at the end of a training step.

    Leaves out: batches sized by tokens. On control, the rows of an aborted group are generated to their end, but only
    the decisions before the abort are counted.
    """

    paper = "PrimeIntellect-ai/prime-rl orchestrator at 559b447, 2026-08; issues 2812 and 3310"

    target_lag: int = option(1, least=1, unit="batch")  # batches
    max_off_policy_steps: int = option(8, least=0)  # versions
    on_stale: OnStale = "drop_group"

    def rules(self, demand: Demand) -> dict[str, Any]:
        counts = "begun" if self.on_stale == "withhold" else "finished"
        gate = {"cap": float(self.target_lag), "cap_counts": counts, "in_flight": "switch", "ahead": self.target_lag}
        return gate | stale_rules(self.max_off_policy_steps, self.on_stale, stop=True)


@LAGS.register("verl_fully_async")
@dataclass(frozen=True)
class VerlFullyAsync(PipelineLag):
    """Weight sync every few steps, with a bound on the share of stale rows.

    Weights are sent every `trigger_parameter_sync_step` steps. Between two syncs, at most (1 + staleness_threshold)
    times as many groups may begin as are trained on, including those in flight or queued at the first of the two.
    With `partial_rollout`, in-flight rows switch to new weights; without it, they finish first.

    Leaves out: `require_batches`. verl counts versions in syncs; lags here are counted in steps.
    """

    paper = "verl-project/verl experimental/fully_async_policy at 1dda039, 2026-08"

    staleness_threshold: float = option(0.1, least=0)  # share
    trigger_parameter_sync_step: int = option(4, least=1, unit="step")  # steps
    partial_rollout: bool = True

    def rules(self, demand: Demand) -> dict[str, Any]:
        interval = self.trigger_parameter_sync_step
        return {
            "cap": interval * (1 + self.staleness_threshold) - 1,
            "sync_every": interval,
            "in_flight": "switch" if self.partial_rollout else "drain",
            "blocking": not self.partial_rollout,
        }


@LAGS.register("partial")
@dataclass(frozen=True)
class Partial(PipelineLag):
    """Partial rollouts: rows that are unfinished when a batch is complete continue under the new weights.

    `oversample` batches are generated at once. Generation stops when one batch is complete and while it trains; the
    remaining rows continue afterwards. Groups of a batch are ordered by when they began. With `mask`, the decisions
    before a row's last interruption are left out of the loss.

    Leaves out: a bound on how often a row may be interrupted.
    """

    paper = "Kimi k1.5, arXiv 2501.12599; THUDM/slime sglang_rollout.py at 0044b40, 2026"

    oversample: float = option(2.0, least=1, unit="batch")  # batches
    mask: bool = False

    def rules(self, demand: Demand) -> dict[str, Any]:
        # The clock counts generation time only, so training takes none
        cut = {"in_flight": "switch", "train_seconds": 0.0, "blocking": True, "order": "began"}
        bound = stale_rules(0, "mask_tokens") if self.mask else {}
        return {"cap": self.oversample - 1, "slots": rows_of(self.oversample, demand), **cut, **bound}
