"""One pipeline under several caps."""

from __future__ import annotations

import pytest

from staleharness.errors import UserError
from staleharness.pipeline.event_simulation import simulate
from staleharness.pipeline.pipeline_settings import preset
from staleharness.pipeline.pipeline_summary import over_caps, summary


def test_results_of_caps_are_those_of_the_summary() -> None:
    pipeline = preset("in-flight", {"steps": 60, "slots": 256})
    caps = over_caps(pipeline, [0, 2, None], seed=3)
    assert [c.name for c in caps] == ["0", "2", "none"] and caps[0].lag == 0
    assert caps[0].lag < caps[1].lag < caps[2].lag
    assert caps[0].step_seconds > caps[1].step_seconds > caps[2].step_seconds
    told = summary(simulate(pipeline.with_settings({"cap": 2}), 3))
    counts = {int(lag): n for lag, n in told["lag"]["tokens"].items()}
    assert caps[1].lag == pytest.approx(sum(lag * n for lag, n in counts.items()) / sum(counts.values()))
    assert (caps[1].step_seconds, caps[1].binds) == (told["step_seconds"], told["binds"])
    assert caps[0].binds == "admission" and caps[2].binds == "trainer"


def test_a_cap_that_starves_the_trainer_is_named() -> None:
    with pytest.raises(UserError, match=r"^CAP=0: deadlock at t = "):
        over_caps(preset("async", {"steps": 20, "sync_every": 4}), [8, 0])
