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
    """Admission by a bound on staleness; rows under way take new weights.

    A group may begin while fewer than (version + 1 + eta) batches have begun (`max_head_offpolicyness`). That bounds
    how much is under way or waiting, and so the mean lag: where it binds, the mean is eta. It bounds no single row:
    others overtake a slow row, which is older by as many versions as they make. K has to hold the oldest row. The
    trainer takes what began first of that which is finished.

    Leaves out: rebuilding the cache of a row that takes new weights, and `should_accept_fn`.
    """

    paper = "AReaL, arXiv 2505.24298; inclusionAI/AReaL workflow_executor.py at 4aef98d, 2026-05"

    longest: ClassVar[str] = "eta bounds the mean lag; a slow row is passed by others, and older"

    eta: float = option(4.0, least=0)  # versions, of the mean lag
    interruptible: bool = True  # rows under way take new weights

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"cap": self.eta, "order": "began", "in_flight": "switch" if self.interruptible else "keep"}


@LAGS.register("skyrl")
@dataclass(frozen=True)
class SkyRL(PipelineLag):
    """Admission by a bound on what is under way; nothing is too old to be trained on.

    A group may begin while fewer than (version + 1 + max_staleness_steps) batches have begun; rows under way
    take new weights. Where the bound binds, it is the mean lag. SkyRL warns about older groups, and trains on them.

    Leaves out: groups without a difference in reward, which `sample_full_batch` replaces.
    """

    paper = "NovaSky-AI/SkyRL fully_async_trainer.py at a956457, 2026-08"

    max_staleness_steps: int = option(4, least=0)  # versions

    def rules(self, demand: Demand) -> dict[str, Any]:
        return {"cap": float(self.max_staleness_steps), "in_flight": "switch"}


@LAGS.register("windowed_fifo")
@dataclass(frozen=True)
class WindowedFifo(PipelineLag):
    """In the order of submission, but a window of others may overtake a slow group.

    A group may begin while fewer than (version + 1 + staleness) batches have begun. The trainer takes finished groups
    among the first `window` of those (as a share of all that may be under way). No group is older than
    staleness + ⌈(W − 1)/P⌉, with W groups in the window and P in a batch; a window of 0 is strict order. Up to two
    batches are made up ahead of the trainer. Rows under way take new weights.

    Leaves out: nothing that lag depends on.
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
    """Batches in the order of the versions that began their rows, a ratio of a batch ahead of the trainer.

    A group may begin while fewer than (version + 1 + async_generation_ratio) batches have begun. The trainer takes
    those of the oldest version first and waits for them, so that the ratio is the lag: with 1.5, half of a batch is 2
    versions old and half of it 1. Rows under way take new weights, and nothing is ever dropped.

    Leaves out: additional prompts (`is_use_additional_prompts`, whose surplus is aborted), queues by expected length,
    and that a prompt belongs to the step in which it is sent, even if it waits for a machine.
    """

    paper = "ROLL Flash, arXiv 2510.11345; alibaba/ROLL generate_scheduler.py at 8eb27cc, 2026-08"

    async_generation_ratio: float = option(2.0, least=0)  # batches

    def rules(self, demand: Demand) -> dict[str, Any]:
        ahead = math.ceil(self.async_generation_ratio * demand.groups) / demand.groups
        return {"cap": ahead, "order": "version_completed", "in_flight": "switch", "blocking": True}


@LAGS.register("prime_rl")
@dataclass(frozen=True)
class PrimeRL(PipelineLag):
    """A gate on batches that are finished ahead, and a bound on the age of a group.

    No group begins while `target_lag` batches are finished beyond the one that trains. Rows under way take new weights.
    Batches are made up as groups finish, `target_lag` of them ahead of the trainer and one more. A group that would be
    more than `max_off_policy_steps` old in the batch that is being made up is dropped, if it is under way then when new
    weights come.

    Leaves out: batches by tokens. On control, the rows of a stopped group are acted to their end, and counted as far as
    they had got.
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
    """A share of stale rows between two syncs, which are some steps apart.

    Between two syncs, `trigger_parameter_sync_step` steps apart, (1 + staleness_threshold) times as many groups are
    generated as are trained. With `partial_rollout`, rows under way take new weights; without it, they finish first.

    Leaves out: `require_batches`. verl counts versions by sync; lags here are counted by step.
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
    """Rows that are unfinished when a batch is full are cut, and go on under the new weights.

    `oversample` batches are generated at once. Generation stops when one of them is finished and while it trains; the
    rest goes on afterwards. A batch stands in the order in which its groups began. With `mask`, the decisions before
    the last cut are left out of the loss.

    Leaves out: a bound on how often a row may be cut.
    """

    paper = "Kimi k1.5, arXiv 2501.12599; THUDM/slime sglang_rollout.py at 0044b40, 2026"

    oversample: float = option(2.0, least=1, unit="batch")  # batches
    mask: bool = False

    def rules(self, demand: Demand) -> dict[str, Any]:
        # The clock is that of generation, for which training takes no time
        cut = {"in_flight": "switch", "train_seconds": 0.0, "blocking": True, "order": "began"}
        bound = stale_rules(0, "mask_tokens") if self.mask else {}
        return {"cap": self.oversample - 1, "slots": rows_of(self.oversample, demand), **cut, **bound}
