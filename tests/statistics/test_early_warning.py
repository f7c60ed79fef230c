"""Falls of a column and of the reward, where values are missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from results_helper import write_run

from staleharness.statistics.claims.early_warning import falls, trailing_mean


def test_a_missing_value_is_in_the_means_of_its_windows_alone() -> None:
    y = np.array([1.0, 2.0, np.nan, 4.0, 6.0, 8.0])
    assert trailing_mean(y, 2) == pytest.approx([1.5, np.nan, np.nan, 5.0, 7.0], nan_ok=True)
    assert len(trailing_mean(y[:1], 2)) == 0


def test_a_fall_after_a_missing_value_is_found(tmp_path: Path) -> None:
    ess = [1.0, float("nan"), *[1.0] * 4, *[0.1] * 6]
    reward = [*[1.0] * 8, *[0.1] * 4]
    columns = {"ess_sequence": ess, "reward": reward}
    run = write_run(tmp_path, kind="language", env="word-problems", phases=12, columns=columns)
    steps = run.column("steps")
    assert steps is not None
    assert falls(run, "ess_sequence", 2 / 3, 0.0, 2) == (steps[6], steps[8])
