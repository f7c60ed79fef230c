"""Lengths of rows and their durations in seconds, group by group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.streams import stream
from .distributions import read_distribution
from .pipeline_settings import Pipeline

CHUNK = 8192
"""Groups drawn at a time; 64 for groups of 64 or more rows."""

Lengths = Callable[[int, int], Sequence[int]]
"""(group, version that it begins with) -> decisions of each of its rows."""


class Workload:
    """Draws the length of each row, and the seconds that it takes in a slot that is not slow.

    `tokens` and `seconds` are lists over all rows so far, in the order in which they begin. `lengths_of` is called for
    the lengths of each group as it begins; without it they are drawn from `pipeline.lengths`.
    """

    def __init__(self, pipeline: Pipeline, seed: int, lengths_of: Lengths | None = None) -> None:
        self.lengths_of, self.groups = lengths_of, 0
        self.group, self.longest = pipeline.group, pipeline.max_tokens
        self.token_seconds = pipeline.token_seconds
        self.lengths = read_distribution(pipeline.lengths, "lengths")
        self.environment = read_distribution(pipeline.environment, "environment")
        self.rng = {name: stream(seed, f"pipeline-{name}") for name in ("lengths", "environment")}
        self.tokens: list[int] = []
        self.seconds: list[float] = []
        self._chunk: tuple[list[int], list[float]] = ([], [])
        self._position = 0
        self._recycled_groups: deque[int] = deque()  # groups whose rows are to be generated again

    def next_group(self, version: int = 0) -> None:
        """Append a group, which begins with `version`: a recycled one with its lengths, or else a new one."""
        if self.lengths_of is not None:
            tokens = list(self.lengths_of(self.groups, version))
            first, seconds = 0, self._seconds(np.array(tokens)).tolist()
            self.groups += 1
        elif self._recycled_groups:
            first = self._recycled_groups.popleft() * self.group
            tokens, seconds = self.tokens, self.seconds
        else:
            if self._position == len(self._chunk[0]):
                self._draw()
            first, (tokens, seconds) = self._position, self._chunk
            self._position += self.group
        self.tokens += tokens[first : first + self.group]
        self.seconds += seconds[first : first + self.group]

    def recycle(self, group: int) -> None:
        """Queue the rows of `group` to be generated again."""
        self._recycled_groups.append(group)

    def _draw(self) -> None:
        n = CHUNK * self.group if self.group < 64 else 64 * self.group
        tokens = np.maximum(1, np.rint(self.lengths.sample(self.rng["lengths"], n)))
        if self.longest is not None:
            tokens = np.minimum(tokens, self.longest)
        seconds = self._seconds(tokens)
        self._chunk, self._position = (tokens.astype(np.int64).tolist(), seconds.tolist()), 0

    def _seconds(self, tokens: NDArray[Any]) -> NDArray[np.float64]:
        """Return the seconds of rows with these numbers of decisions."""
        outside = self.environment.sample(self.rng["environment"], len(tokens))
        return np.asarray(tokens * self.token_seconds + outside)
