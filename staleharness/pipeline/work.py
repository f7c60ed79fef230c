"""What there is to do: the length of each row, and how long it takes where slots are not slow, drawn group by group."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..base.streams import stream
from .distributions import read_distribution
from .settings import Pipeline

CHUNK = 8192  # groups drawn at a time
Lengths = Callable[[int, int], Sequence[int]]  # (group, version that it begins with) -> decisions of each of its rows


class Work:
    """Rows in the order in which they begin. `tokens` and `seconds` are lists over all rows drawn so far. Where
    `asked` is given, lengths are not drawn: it is asked for those of each group as it begins."""

    def __init__(self, pipeline: Pipeline, seed: int, asked: Lengths | None = None) -> None:
        self.asked, self.begun = asked, 0
        self.group, self.longest = pipeline.group, pipeline.max_tokens
        self.token_seconds = pipeline.token_seconds
        self.lengths = read_distribution(pipeline.lengths, "lengths")
        self.environment = read_distribution(pipeline.environment, "environment")
        self.rng = {name: stream(seed, f"pipeline-{name}") for name in ("lengths", "environment")}
        self.tokens: list[int] = []
        self.seconds: list[float] = []
        self._drawn: tuple[list[int], list[float]] = ([], [])
        self._at = 0
        self._again: deque[int] = deque()  # groups whose rows are generated once more

    def more(self, version: int = 0) -> None:
        """One more group, which begins with a version: a recycled one if there is any, with its lengths, or else a new
        one."""
        if self.asked is not None:
            tokens = list(self.asked(self.begun, version))
            first, seconds = 0, self._seconds(np.array(tokens)).tolist()
            self.begun += 1
        elif self._again:
            first = self._again.popleft() * self.group
            tokens, seconds = self.tokens, self.seconds
        else:
            if self._at == len(self._drawn[0]):
                self._draw()
            first, (tokens, seconds) = self._at, self._drawn
            self._at += self.group
        self.tokens += tokens[first : first + self.group]
        self.seconds += seconds[first : first + self.group]

    def recycle(self, group: int) -> None:
        """Let the rows of `group` be generated again."""
        self._again.append(group)

    def _draw(self) -> None:
        n = CHUNK * self.group if self.group < 64 else 64 * self.group
        tokens = np.maximum(1, np.rint(self.lengths.sample(self.rng["lengths"], n)))
        if self.longest is not None:
            tokens = np.minimum(tokens, self.longest)
        seconds = self._seconds(tokens)
        self._drawn, self._at = (tokens.astype(np.int64).tolist(), seconds.tolist()), 0

    def _seconds(self, tokens: NDArray[Any]) -> NDArray[np.float64]:
        """That rows of so many decisions take."""
        outside = self.environment.sample(self.rng["environment"], len(tokens))
        seconds: NDArray[np.float64] = tokens * self.token_seconds + outside
        return seconds
