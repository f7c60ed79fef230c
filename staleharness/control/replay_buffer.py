"""Stored data that returns: the second mechanism of staleness, under the same lag models.

The newest policy collects every phase and its rollout is kept for K phases. What the learner consumes is drawn by the
lag model: `fixed:<l>` is a first-in-first-out delay that takes the first batch l + 1 times (`delay` does not),
`uniform` is replay in which a row may return several times or never. Rows that leave unseen are counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Rollout


class RolloutStore:
    """The rollouts of the newest `capacity` phases."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity, self.device = capacity, device
        self.unseen_rows = 0  # rows that left without ever being consumed
        self.reused_rows = 0  # of those that were consumed last, how many had been before
        self._rollouts: dict[int, Rollout] = {}
        self._seen_rows: dict[int, NDArray[np.bool_]] = {}

    def push(self, phase: int, rollout: Rollout) -> None:
        self._rollouts[phase] = rollout
        self._seen_rows[phase] = np.zeros(rollout.reward.shape[0], dtype=bool)
        while len(self._rollouts) > self.capacity:
            leaving = min(self._rollouts)
            self.unseen_rows += int((~self._seen_rows.pop(leaving)).sum())
            del self._rollouts[leaving]

    def draw(self, phases: NDArray[np.int64]) -> Rollout:
        """Row b from the rollout of `phases[b]`; rows come sorted by phase, then by slot."""
        parts, self.reused_rows = [], 0
        for phase in np.unique(phases).tolist():
            rows = np.flatnonzero(phases == phase)
            self.reused_rows += int(self._seen_rows[phase][rows].sum())
            self._seen_rows[phase][rows] = True
            parts.append(self._rollouts[phase].rows(torch.from_numpy(rows).to(self.device)))
        return concatenate(parts)

    @property
    def waiting_rows(self) -> int:
        """Rows that are held and have not been consumed yet."""
        return sum(int((~is_seen).sum()) for is_seen in self._seen_rows.values())

    def state_dict(self) -> dict[str, Any]:
        return {
            "unseen_rows": self.unseen_rows,
            "rollouts": {phase: rollout.columns for phase, rollout in self._rollouts.items()},
            "seen": {phase: torch.from_numpy(is_seen) for phase, is_seen in self._seen_rows.items()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.unseen_rows = state["unseen_rows"]
        self._rollouts = {phase: Rollout(**tensors).to(self.device) for phase, tensors in state["rollouts"].items()}
        self._seen_rows = {phase: is_seen.numpy() for phase, is_seen in state["seen"].items()}


def concatenate(rollouts: list[Rollout]) -> Rollout:
    """Rollouts of equal length, one under the other."""
    offsets = np.cumsum([0] + [r.reward.shape[0] for r in rollouts[:-1]]).tolist()
    columns = {name: torch.cat([getattr(r, name) for r in rollouts]) for name in rollouts[0].columns}
    columns["final_row"] = torch.cat([r.final_row + offset for r, offset in zip(rollouts, offsets, strict=True)])
    return Rollout(**columns)
