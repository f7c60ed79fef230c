"""One pipeline under several caps."""

from __future__ import annotations

import numpy as np
import pytest

from staleharness.errors import UserError
from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_event_log import TRAINED
from staleharness.pipeline.pipeline_settings import preset
from staleharness.pipeline.pipeline_summary import over_caps, summary


def test_results_of_caps_are_those_of_the_summary() -> None:
    pipeline = preset("in-flight", {"steps": 60, "slots": 256})
    caps = over_caps(pipeline, [0, 2, None])
    assert [c.name for c in caps] == ["0", "2", "none"] and caps[0].lag == 0
    assert caps[0].lag < caps[1].lag < caps[2].lag
    assert caps[0].step_seconds > caps[1].step_seconds > caps[2].step_seconds
    expected = summary(simulate(pipeline.with_settings({"cap": 2})))
    counts = {int(lag): n for lag, n in expected["lag"]["tokens"].items()}
    assert caps[1].lag == pytest.approx(sum(lag * n for lag, n in counts.items()) / sum(counts.values()))
    assert caps[1].row_lag == expected["lag"]["start_mean"]
    assert (caps[1].step_seconds, caps[1].binds) == (expected["step_seconds"], expected["binds"])
    assert caps[0].binds == "admission" and caps[2].binds == "trainer"


def test_a_cap_that_starves_the_trainer_is_named() -> None:
    with pytest.raises(UserError, match=r"^CAP=0: deadlock at t = "):
        over_caps(preset("async", {"steps": 20, "sync_every": 4}), [8, 0])


def test_token_lag_is_one_number_in_every_place() -> None:
    """Recomputed from the rows, of which each keeps its version."""
    settings = {"slots": 64, "batch": 32, "group": 1, "train_seconds": 1, "token_seconds": 0.001, "cap": None}
    pipeline = preset("async", {**settings, "lengths": "lognormal[mean=2200,cv=1.2]", "steps": 200})
    record = simulate(pipeline)
    lags = summary(record)["lag"]
    late = (record.step >= record.warm) & (record.fate == TRAINED)
    first = record.segment_version[np.searchsorted(record.segment_row, np.arange(len(late)))]
    lag, length = (record.step - first)[late], record.tokens[late]
    assert lags["start_mean"] == pytest.approx(lag.mean())
    assert lags["token_weighted_mean"] == pytest.approx((lag * length).sum() / length.sum())
    assert lags["token_weighted_mean"] > 1.5 * lags["start_mean"]  # long rows are old
    (cap,) = over_caps(pipeline, [None])
    assert (cap.lag, cap.row_lag) == (lags["token_weighted_mean"], lags["start_mean"])


@pytest.mark.parametrize("cap", [1, 2])
def test_a_cap_that_binds_is_the_mean_lag_of_rows_alone(cap: int) -> None:
    (found,) = over_caps(preset("async", {"slots": 128, "steps": 150}), [cap])
    assert found.binds == "admission"
    assert found.row_lag == pytest.approx(cap, rel=0.03) and found.lag > 1.05 * cap
