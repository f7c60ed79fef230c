"""Each cell is resampled with numbers of its own, the same in every process."""

from __future__ import annotations

import numpy as np

from staleharness.statistics.bootstrap import fast_interval, stable_seed


def test_a_seed_is_a_function_of_the_whole_name() -> None:
    names = [("iqm", "vaco", 1), ("iqm", "vaco", 8), ("iqm", "spo", 1), ("median", "vaco", 1)]
    assert len({stable_seed(*name) for name in names}) == len(names)
    assert stable_seed("iqm", "vaco", 1) == 1966699404  # as of published tables
    assert all(0 <= stable_seed(*name) < 2**32 for name in names)


def test_cells_with_the_same_scores_have_intervals_of_their_own() -> None:
    columns = [np.random.default_rng(0).normal(size=7)]

    def mean(*drawn: np.ndarray) -> np.ndarray:
        return drawn[0].mean(axis=-1)[..., None]

    intervals = [fast_interval(mean, columns, name=("mean", label), reps=50) for label in ("a", "a", "b")]
    lows = [float(low[0]) for low, _ in intervals]
    assert lows[0] == lows[1] != lows[2]
