"""Schedules as they were when they were first written down. One that moves moves runs, whose ids do not say so: the
simulation is no file of a lag model. Then `MATHS_VERSION` has to, unless the models that move are edited as well."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from staleharness.lag import read_lag
from staleharness.rollout_schedule import Demand

WRITTEN_DOWN = {
    "areal": "fbd3ba6c3ef1",
    "areal[cv=2.0,sync_time=0.3]": "d9f475378271",
    "verl_fully_async": "165611c0029a",
    "prime_rl[max_off_policy_steps=2,on_stale=requeue]": "12adcb5ac652",
    "nemo_rl[max_staleness=2,sampler=weight_fifo]": "cfdf2de0d34c",
    "megatron[submit=R,consume=G]": "9df142fdb782",
    "windowed_fifo": "900743390efb",
    "rllib_appo[circular_buffer_iterations_per_batch=1]": "ab3814185057",
    "slime:3": "fe9ee99c8bd3",
    "partial": "b1a6ac60474b",
    "delay:3": "f008d81ab847",
}


@pytest.mark.parametrize("text", WRITTEN_DOWN)
def test_a_schedule_has_not_moved(text: str) -> None:
    plan = read_lag(text).schedule(Demand(phases=60, groups=6, rows=2, length=50, seed=7))
    columns = (plan.actor, plan.nth, plan.phase, plan.place, plan.oldest, plan.newest)
    found = hashlib.sha256(b"".join(column.astype(np.int64).tobytes() for column in columns)).hexdigest()[:12]
    assert found == WRITTEN_DOWN[text]
