"""The bit chain: who succeeds, how likely that is, and what a user gets wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from staleharness.chain.spec import ChainSpec
from staleharness.chain.task import ChainTask
from staleharness.errors import UserError
from staleharness.running.plan import plan
from staleharness.study import sweep_request
from staleharness.task import ENVS
from staleharness.testing import check_chain_task


def spec_of(**settings: Any) -> ChainSpec:
    return ChainSpec.from_dict({"env": "bit-chain", "algorithm": "seq_is", **settings})


def task() -> ChainTask:
    found = ENVS["bit_chain"]()
    assert isinstance(found, ChainTask)
    return found


def test_it_keeps_the_contract() -> None:
    """The probability of success among others, which is added up there over all 2^H episodes."""
    check_chain_task(ENVS["bit_chain"], "bit-chain")


@pytest.mark.parametrize(
    ("horizon", "share", "least"), [(4, 0.75, 3), (10, 0.75, 8), (10, 0.7, 7), (3, 1.0, 3), (5, 0.01, 1)]
)
def test_an_episode_needs_a_share_of_ones_rounded_up(horizon: int, share: float, least: int) -> None:
    ones = np.arange(horizon)[None] < np.arange(horizon + 1)[:, None]  # 0, 1, ... ones
    found = task().outcome(spec_of(horizon=horizon, share=share), ones)
    assert found.tolist() == [count >= least for count in range(horizon + 1)]


def test_of_equal_decisions_it_is_the_tail_of_a_binomial() -> None:
    found = task().success_probability(spec_of(horizon=64), np.full(64, 0.7))
    assert found == pytest.approx(sum(math.comb(64, k) * 0.7**k * 0.3 ** (64 - k) for k in range(48, 65)))


@pytest.mark.parametrize("horizon", [1, 64, 1024])
def test_every_horizon_starts_as_easy(horizon: int) -> None:
    for start in (1e-6, 0.1, 0.9):
        spec = spec_of(horizon=horizon, start=start)
        p = task().start(spec)
        assert task().success_probability(spec, np.full(horizon, p)) == pytest.approx(start, rel=1e-6)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"settings": "share=1.5"}, "share=1.5 must be above 0 and at most 1"),
        ({"settings": "start=0"}, "start=0.0 must lie between 1e-06 and 1 - 1e-06"),
        ({"settings": "horizon=0"}, "horizon=0 must be positive"),
        ({"settings": "batch=1"}, "batch=1 leaves the dr_grpo baseline no other episode to compare with"),
        ({"settings": "horizont=4"}, "unknown option 'horizont' of bit-chain; did you mean 'horizon'?"),
        ({"settings": "num_envs=4"}, "unknown option 'num_envs' of bit-chain"),
        ({"steps": "7", "n": "2"}, "STEPS=7 is not a whole number of phases of 2 optimiser steps; give 6 or 8"),
        ({"lag": "inflight:4"}, "LAG=inflight:4 changes weights inside a row; bit-chain cannot"),
        ({"lag": "fixed:9"}, "LAG=fixed:9 needs a buffer of at least K=10"),
        ({"env": "bit-chian"}, "did you mean 'bit-chain'?"),
    ],
)
def test_a_mistake_is_one_line(words: dict[str, str], complaint: str) -> None:
    with pytest.raises(UserError) as caught:
        plan(sweep_request(**{"env": "bit-chain", "algo": "seq_is", **words}))
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


def test_horizon_and_batch_stand_in_brackets() -> None:
    made = plan(sweep_request(env="bit-chain", algo="seq_is[horizon=8,batch=4]", seeds="1"))
    (run,) = made.runs
    assert run.label == "seq_is[batch=4,horizon=8]"
    assert isinstance(run.spec, ChainSpec) and (run.spec.horizon, run.spec.batch) == (8, 4)
