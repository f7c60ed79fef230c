"""Settings of a run on a chain of binary decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from ..errors import UserError
from ..rollout_schedule import Demand
from ..spec import Aggregation, RunSpec
from ..tokens.token_run_spec import TokenSpec

RAREST = 1e-6  # success of the first policy


@dataclass(frozen=True)
class ChainSpec(TokenSpec):
    """A run on episodes of `horizon` binary decisions; `steps` counts optimiser steps.

    One phase is `minibatches` (N, the forward lag) minibatches of `batch` episodes, each episode acted by the version
    that the lag model assigns to it.
    """

    steps: int = 128  # N of them in a phase

    # the task
    horizon: int = 64  # H, decisions of an episode
    share: float = 0.75  # f, share of ones needed for success
    start: float = 0.1  # the first policy's success probability, whatever the horizon

    batch: int = 128  # B, episodes of a minibatch

    # advantage and loss
    baseline: Literal["dr_grpo", "grpo", "rloo", "none"] = "dr_grpo"  # of the reward, over the minibatch
    aggregation: Aggregation = "token-mean"  # how the losses of decisions become one number

    # learning: that of tokens, with a rate for a table of logits
    learning_rate: float = 0.03
    anneal_learning_rate: bool = False
    adam_epsilon: float = 1e-8
    discount: float = 1.0
    gae_lambda: float = 1.0
    normalise_advantage: bool = False  # the baseline does it
    max_grad_norm: float = 1.0

    row_noun: ClassVar[str] = "episode"
    group_setting: ClassVar[str] = "batch"
    alike: ClassVar[tuple[str, ...]] = (*RunSpec.alike, "horizon", "batch", "minibatches")
    positive: ClassVar[str] = f"{RunSpec.positive} horizon batch"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {},  # a second
        "standard": {"steps": 512, "evaluations": 16},
        "paper": {"steps": 2048, "evaluations": 32, "learning_rate": 0.01},  # time for a lag of 1,000 updates
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise UserError(f"share={self.share} must be above 0 and at most 1")
        if not RAREST <= self.start <= 1 - RAREST:
            raise UserError(f"start={self.start} must lie between {RAREST:g} and 1 - {RAREST:g}")

    @property
    def completions(self) -> int:
        """Episodes that share a baseline: all of a minibatch, for they all begin alike."""
        return self.batch

    @property
    def completion_tokens(self) -> int:
        """Decisions of the longest row: H, of every row."""
        return self.horizon

    @property
    def demand(self) -> Demand:
        return Demand(self.phases, self.minibatches * self.batch, 1, self.horizon, self.seed)

    @property
    def size(self) -> str:
        return f"{self.steps} optimiser steps of {self.batch} episodes of {self.horizon} decisions"
