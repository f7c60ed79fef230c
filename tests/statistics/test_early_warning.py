"""Falls of a column and of the reward, where values are missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.statistics.claims.early_warning import count_warnings, falls, trailing_mean


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


def test_a_run_too_short_to_fall_is_not_counted(tmp_path: Path) -> None:
    """K = 2: the lag is 1, so that the first two phases do not count; then two means of 8 phases need nine more."""
    task = {"env": "word-problems", "kind": "language", "capacity": 2}
    short = write_run(tmp_path, "tis", 0, phases=10, columns={"ess_sequence": [0.9] * 10, "reward": [0.9] * 10}, **task)
    whole = write_run(tmp_path, "tis", 1, phases=11, columns={"ess_sequence": [0.9] * 11, "reward": [0.9] * 11}, **task)
    assert sum(count_warnings([short, whole]).stable) == 1
    with pytest.raises(UserError, match="no stale run has 9 phases of ess_sequence and reward after twice its largest"):
        count_warnings([short])


def test_a_metric_that_no_run_has_is_refused(tmp_path: Path) -> None:
    columns = {"ess_sequence": [float("nan")] * 20, "reward": [0.9] * 20}
    run = write_run(tmp_path, "tis", kind="language", env="word-problems", capacity=2, phases=20, columns=columns)
    for metric in ("ess_sequence", "nosuch"):
        with pytest.raises(UserError, match=f"no stale run has 9 phases of {metric} and reward"):
            count_warnings([run], metric)
