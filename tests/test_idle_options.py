"""Options of lag models that do nothing beside others: refused where a run is planned, and only there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from staleharness.commands.pipeline import Command, handle
from staleharness.control.spec import ControlSpec
from staleharness.errors import UserError
from staleharness.idle_options import IDLE_OPTIONS, check_options
from staleharness.lag import read_lag
from staleharness.task import find_env

IDLE = {
    "async[queue=0.5]": "queue=0.5 does nothing, as a queue holds at least 1 batch; leave it out",
    "async[spread=3]": "spread=3.0 does nothing, as it multiplies a delay, which is 0",
    "async[actors=1,spread=3,delay=0.01]": "spread=3.0 does nothing, as there is only one actor",
    "async[slow=2,delay=0.01]": "slow=2 does nothing, as no actor is slower with spread=1",
    "queue[on_stale=requeue]": "on_stale=requeue does nothing, as nothing is too old without a max_lag",
    "queue[max_lag=2,on_stale=withhold,capacity=4]": "capacity=4.0 does nothing, as on_stale=withhold bounds",
    "prime_rl[target_lag=3,on_stale=withhold]": "target_lag=3 does nothing, as on_stale=withhold bounds",
    "pipeline_rl[max_lag=2,buffer=3]": "buffer=3.0 does nothing, as a max_lag holds generation back instead",
    "nemo_rl[on_stale=requeue]": "on_stale=requeue does nothing, as only sampler=windowed uses it",
    "nemo_rl[buffered=3]": "buffered=3.0 does nothing, as only sampler=windowed uses it",
    "nemo_rl[sampler=windowed,on_stale=withhold,buffered=3]": "buffered=3.0 does nothing, as on_stale=withhold",
    "miles[on_stale=requeue]": "on_stale=requeue does nothing, as nothing is too old without a max_weight_staleness",
    "tinker[pipeline_depth=2,on_stale=drop_group]": "on_stale=drop_group does nothing, as nothing is too old with a",
}
EFFECTIVE = (
    "async async[queue=4,train=1] async[delay=0.01,spread=3,slow=2] queue[max_lag=1,on_stale=requeue] "
    "queue[capacity=4] queue[max_lag=2,on_stale=withhold] prime_rl[target_lag=3] prime_rl[on_stale=withhold] "
    "pipeline_rl[buffer=3] pipeline_rl[max_lag=2] nemo_rl[sampler=windowed,on_stale=requeue,buffered=3] "
    "nemo_rl[sampler=weight_fifo] miles[max_weight_staleness=2,on_stale=requeue] tinker[on_stale=drop_group] "
    "tinker[pipeline_depth=2]"
)


@pytest.mark.parametrize("text", IDLE)
def test_an_option_that_does_nothing_is_refused(text: str) -> None:
    spec = ControlSpec(env="Hopper-v5", algorithm="ppo_clip", capacity=16, lag=text)
    with pytest.raises(UserError, match=IDLE[text]):
        find_env("Hopper-v5")[1].check(spec)


def test_each_entry_has_a_case() -> None:
    assert len(IDLE) == len(IDLE_OPTIONS)


@pytest.mark.parametrize("text", EFFECTIVE.split())
def test_an_option_with_an_effect_is_none_of_them(text: str) -> None:
    check_options(read_lag(text))


def test_a_simulated_pipeline_refuses_them_too() -> None:
    with pytest.raises(UserError, match=r"capacity=4\.0 does nothing"):
        handle(Command(preset="queue[max_lag=2,on_stale=withhold,capacity=4]"))


@pytest.mark.parametrize("lag", ["slow_actors:4", "slow_actors[lag=4,fast=1,every=8]", "slow_actors:4/sync:2"])
def test_slow_actors_need_an_actor_that_is_slow(lag: str) -> None:
    spec = ControlSpec(env="Hopper-v5", algorithm="ppo_clip", capacity=16, lag=lag, num_envs=8)
    find_env("Hopper-v5")[1].check(spec)
    few = replace(spec, num_envs=4)
    with pytest.raises(UserError, match=r"no actor is slow: one in 8 would be, and a phase has 4 actors; give every=4"):
        find_env("Hopper-v5")[1].check(few)
    find_env("Hopper-v5")[1].check(replace(few, lag="slow_actors[lag=4,every=4]"))


def test_slow_actors_are_counted_in_the_slots_that_are_drawn() -> None:
    """Not by `envs_per_actor`, which is for lag models that plan actors."""
    spec = ControlSpec(env="Hopper-v5", algorithm="ppo_clip", capacity=16, lag="slow_actors:3", envs_per_actor=4)
    find_env("Hopper-v5")[1].check(spec)
    with pytest.raises(UserError, match="starves in phase 16"):
        find_env("Hopper-v5")[1].check(replace(spec, lag="slow_actors:3/cap:1"))


@pytest.mark.parametrize("lag", ["slow_actors:4/cap:1", "slow_actors[lag=2,every=4]/cap:0"])
def test_a_bound_that_a_slow_actor_never_keeps_is_refused(lag: str) -> None:
    spec = ControlSpec(env="Hopper-v5", algorithm="ppo_clip", capacity=16, lag=lag, num_envs=8)
    with pytest.raises(UserError, match=r"starves in phase 16: 10,000 draws were all too old"):
        find_env("Hopper-v5")[1].check(spec)
    find_env("Hopper-v5")[1].check(replace(spec, lag=f"{lag[:-1]}4"))


@pytest.mark.parametrize("lag", ["slow_actors:4", "slow_actors:4/sync:2"])
def test_a_mixture_needs_the_share_of_slow_actors_to_be_exact(lag: str) -> None:
    spec = ControlSpec(env="Hopper-v5", algorithm="ppo_clip", capacity=16, lag=lag, num_envs=12)
    find_env("Hopper-v5")[1].check(spec)
    mixture = replace(spec, density="mixture")
    with pytest.raises(UserError, match="one in 8 actors as slow, and num_envs=12 is no multiple of 8; give every=4"):
        find_env("Hopper-v5")[1].check(mixture)
    find_env("Hopper-v5")[1].check(replace(mixture, lag=lag.replace(":4", "[lag=4,every=6]", 1)))
    find_env("Hopper-v5")[1].check(replace(mixture, num_envs=16))
