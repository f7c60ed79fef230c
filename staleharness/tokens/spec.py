"""Settings that the learner of tokens reads, beyond those of every run."""

from __future__ import annotations

from typing import ClassVar

from ..spec import Aggregation, RunSpec


class TokenSpec(RunSpec):
    """A run whose rows are completions, or episodes that are learnt from as if they were."""

    advantage_correction: ClassVar[float] = 0.0

    @property
    def baseline(self) -> str:
        """Baseline of the reward over a group: grpo, dr_grpo, rloo or none."""
        raise NotImplementedError

    @property
    def aggregation(self) -> Aggregation:
        raise NotImplementedError

    @property
    def completions(self) -> int:
        """Rows that share a baseline."""
        raise NotImplementedError

    @property
    def completion_tokens(self) -> int:
        """Decisions of the longest row."""
        raise NotImplementedError

    @property
    def mask_truncated(self) -> bool:
        """True where rows cut at the limit are not trained on."""
        return False
