"""Settings that the learner of tokens reads, beyond those of every run."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

from ..errors import UserError
from ..spec import Aggregation, RunSpec


class TokenSpec(RunSpec):
    """A run whose rows are completions, or episodes that are learnt from as if they were."""

    advantage_correction: ClassVar[float] = 0.0
    unit: ClassVar[str] = "optimiser steps"
    phase_noun: ClassVar[str] = "phase"  # in error messages, as are the next two
    row_noun: ClassVar[str] = "completion"
    group_setting: ClassVar[str] = "completions"  # setting that decides the size of a group

    def __post_init__(self) -> None:
        super().__post_init__()
        n = self.steps_per_phase
        if self.steps % n:
            below = self.steps // n * n
            near = f"{below} or {below + n}" if below else f"{n}"
            raise UserError(
                f"STEPS={self.steps} is not a whole number of {self.phase_noun}s of {n} optimiser steps; give {near}"
            )
        if self.completions == 1 and self.baseline != "none":
            raise UserError(
                f"{self.group_setting}=1 leaves the {self.baseline} baseline no other {self.row_noun} to compare with; "
                "give at least 2, or baseline=none"
            )

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

    def probe(self) -> Self:
        return dataclasses.replace(
            self, steps=3 * self.steps_per_phase, evaluations=1, fill_phases=0, fill_learning_rate=0.0
        )
