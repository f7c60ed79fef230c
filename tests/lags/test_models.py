"""Lag models give versions that the buffer holds, and the buffer holds the newest ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from places import ROOT

from staleharness.base.streams import stream
from staleharness.errors import UserError
from staleharness.lag import LAGS, Draw, LagModel, parse_lag, read_lag
from staleharness.testing import LagCheck, check_lag_model, parametrize_with_lag_checks
from staleharness.training.policy_buffer import PolicyBuffer, Version

capacities = st.integers(1, 70)
phases = st.integers(0, 200)
seeds = st.integers(0, 2**32)

ONE_OF_EACH = """
    uniform oldest fixed:0 fixed:4 geometric:0.5 geometric:1.0 sync:3 uniform/sync:3 geometric:0.7/sync:5
    oldest/sync:4 inflight:3 inflight:100 poisson:0 poisson:2.5 poisson:900 lognormal:1.5
    lognormal[median=30,sigma=0.2] slow_actors:4 slow_actors[lag=3,every=4,fast=1] poisson:1/sync:4 cap:2
    cap[max=1,on_stale=requeue,of=geometric:0.7] cap[max=0,on_stale=withhold] uniform/cap:3 exact:3
    exact[age=1,bootstrap=7] tba tba[k=1,m=0.5] tba[k=2,m=0.0] delay delay:2 delay[lag=2,warm_up=reuse]
    delay[lag=4,warm_up=ramp] areal areal[eta=0.5,interruptible=false] verl_one_step_off verl_fully_async
    verl_fully_async[partial_rollout=false] prime_rl prime_rl[max_off_policy_steps=2,on_stale=requeue]
    prime_rl[max_off_policy_steps=2,on_stale=withhold] nemo_rl nemo_rl[max_staleness=2,sampler=weight_fifo]
    nemo_rl[max_staleness=2,sampler=ready_first] nemo_rl[max_staleness=2,sampler=windowed] megatron
    megatron[submit=G,consume=G] megatron[submit=R,consume=G] megatron[submit=G] megatron[lag=0.0,submit=R]
    windowed_fifo pipeline_rl pipeline_rl[max_lag=1] laminar roll_flash llamarl slime slime:3
    skyrl cleanba sample_factory sample_factory[max_lag=2] rllib_appo rllib_impala trl_async_grpo verl_v1
    verl_v1[max_off_policy_threshold=3,max_off_policy_strategy=wait] miles miles[max_weight_staleness=1]
    open_instruct open_instruct[async_steps=2,inflight_updates=false] openrlhf_async
    openrlhf_async[async_queue_size=2,partial_rollout=true] tinker tinker[max_steps_off_policy=1]
    queue queue[full=drop_oldest] queue[max_lag=2,on_stale=drop_sample]
    queue[max_lag=1,on_stale=withhold] partial partial[mask=true] queue[cv=0.0,row_time=0.1,slots=0.1]
    areal[cv=3.0,sync_time=0.7]
""".split()
LOGS = ROOT / "tests" / "data" / "logs"
ONE_OF_EACH += [
    f"log[file={LOGS}/histogram.csv,tail=cut]",
    f"log[file={LOGS}/pipelinerl_new.csv,per_phase=50,tail=cut]",
]


def test_there_is_an_example_of_every_model() -> None:
    assert {read_lag(text).name for text in ONE_OF_EACH} == set(LAGS) - {"async", "trace"}, "these assign nothing"


@pytest.mark.parametrize("text", ONE_OF_EACH)
def test_every_lag_model_keeps_the_contract(text: str) -> None:
    check_lag_model(read_lag(text))


@pytest.mark.parametrize("text", ["queue[pace=length]", "async", "async[actors=2]"])
def test_models_that_plan_nothing_before_the_run_keep_it(text: str) -> None:
    check_lag_model(read_lag(text))


@parametrize_with_lag_checks([read_lag("uniform")])
def test_a_model_and_its_checks_may_be_tests_of_their_own(model: LagModel, check: LagCheck) -> None:
    check(model)


def versions_of(model: LagModel, capacity: int, phase: int, slots: int = 1, seed: int = 0) -> NDArray[np.int64]:
    """Return the versions [slots] that a run would assign."""
    return model.assign(Draw(phase, slots, capacity, 1, seed, (phase,))).starts


def lags_of(text: str, capacity: int, phases: int) -> list[int]:
    model = parse_lag(text, capacity)
    return [phase - versions_of(model, capacity, phase).item() for phase in range(phases)]


@st.composite
def models(draw: st.DrawFn) -> tuple[LagModel, int]:
    capacity = draw(capacities)
    lag, period = draw(st.integers(0, capacity - 1)), draw(st.integers(1, 90))
    text = draw(st.sampled_from(["uniform", f"fixed:{lag}", "geometric:0.7", "geometric:1", "geometric:0.001"]))
    text = draw(st.sampled_from([text, f"{text}/sync:{period}", f"sync:{min(period, capacity)}"]))
    return parse_lag(text, capacity), capacity


def buffer_at(capacity: int, phase: int) -> PolicyBuffer:
    """Return the buffer when versions are assigned in `phase`."""
    buffer = PolicyBuffer(capacity)
    for version in range(phase + 1):
        buffer.push(Version(version, 10 * version, {}))
    return buffer


@given(models(), phases, st.integers(1, 50), seeds)
def test_every_assigned_version_is_in_the_buffer(
    model: tuple[LagModel, int], phase: int, slots: int, seed: int
) -> None:
    buffer = buffer_at(model[1], phase)
    versions = versions_of(*model, phase, slots, seed)
    assert versions.shape == (slots,)
    assert all(version in buffer for version in versions.tolist())


@given(models(), phases)
def test_probabilities_cover_the_buffer_and_sum_to_one(model: tuple[LagModel, int], phase: int) -> None:
    lag_model, capacity = model
    probabilities = lag_model.probabilities(phase, capacity)
    buffer = buffer_at(capacity, phase)
    assert all(version in buffer and p > 0 for version, p in probabilities.items())
    assert sum(probabilities.values()) == pytest.approx(1.0)


@given(models(), phases, seeds)
def test_what_is_assigned_is_what_the_probabilities_say_may_be(
    model: tuple[LagModel, int], phase: int, seed: int
) -> None:
    drawn = set(versions_of(*model, phase, 64, seed).tolist())
    assert drawn <= set(model[0].probabilities(phase, model[1]))


@pytest.mark.parametrize("capacity", [1, 2, 8, 64])
@pytest.mark.parametrize(
    ("text", "mean"),
    [
        ("uniform", lambda k: (k - 1) / 2),
        ("oldest", lambda k: k - 1),
        ("fixed:0", lambda k: 0),
        ("geometric:0.5", lambda k: 1 - k / (2**k - 1)),  # Σ j 2^-j / Σ 2^-j for j < K
        ("geometric:0.9", lambda k: 9 - k * 0.9**k / (1 - 0.9**k)),  # r/(1 − r) − K r^K/(1 − r^K)
        ("uniform/sync:1", lambda k: 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_mean_lag_of_a_full_buffer_has_a_closed_form(
    text: str, mean: Callable[[int], float], capacity: int
) -> None:
    model, phase, slots = parse_lag(text, capacity), 100, 40_000
    said = sum((phase - version) * p for version, p in model.probabilities(phase, capacity).items())
    assert said == pytest.approx(mean(capacity), abs=1e-9)
    found = float((phase - versions_of(model, capacity, phase, slots)).mean())
    assert found == pytest.approx(mean(capacity), abs=5 * capacity / slots**0.5)


def test_the_mean_lag_of_a_sync_is_half_its_period() -> None:
    """A sawtooth of 0 ... M − 1; uniform in between halves each of its teeth."""
    assert np.mean(lags_of("sync:8", 8, 80)) == (8 - 1) / 2
    model = parse_lag("uniform/sync:8", 8)
    means = [sum((t - v) * p for v, p in model.probabilities(t, 8).items()) for t in range(80, 88)]
    assert means == pytest.approx([t / 2 for t in range(8)])


def test_uniform_gives_every_version_in_the_buffer_its_share() -> None:
    phase, slots = 20, 80_000
    counts = np.bincount(phase - versions_of(read_lag("uniform"), 8, phase, slots), minlength=8)
    assert len(counts) == 8
    chi_squared = float(((counts - slots / 8) ** 2 / (slots / 8)).sum())
    assert chi_squared < 24.3  # the 0.999 quantile with 7 degrees of freedom


def test_draws_equal_those_of_stored_runs() -> None:
    """Written down when lag models became plugins: published runs hang on them."""
    uniform, geometric = read_lag("uniform"), read_lag("geometric:0.7")
    rng = [stream(3, "assignment", 9) for _ in range(2)]
    assert versions_of(uniform, 8, 9, 12, 3).tolist() == (9 - rng[0].integers(0, 8, size=12)).tolist()
    share = 0.7 ** np.arange(8.0)
    expected = 9 - rng[1].choice(8, size=12, p=share / share.sum())
    assert versions_of(geometric, 8, 9, 12, 3).tolist() == expected.tolist()


def test_a_model_draws_from_a_buffer_that_is_not_full() -> None:
    assert read_lag("uniform").probabilities(2, 64) == {0: 1 / 3, 1: 1 / 3, 2: 1 / 3}
    assert set(versions_of(read_lag("uniform"), 64, 0, 9).tolist()) == {0}
    assert read_lag("geometric:0.5").probabilities(1, 64) == pytest.approx({1: 2 / 3, 0: 1 / 3})


def test_fixed_is_as_far_behind_as_it_can_be() -> None:
    assert lags_of("fixed:3", 4, 6) == [0, 1, 2, 3, 3, 3]


def test_geometric_halves_the_share_with_each_phase_of_lag() -> None:
    """decay ½ over four versions: 8, 4, 2, 1 of 15."""
    model, phase, slots = parse_lag("geometric:0.5", 4), 20, 60_000
    expected = {20: 8 / 15, 19: 4 / 15, 18: 2 / 15, 17: 1 / 15}
    assert model.probabilities(phase, 4) == pytest.approx(expected)
    counts = np.bincount(phase - versions_of(model, 4, phase, slots), minlength=4)
    share = np.array([8, 4, 2, 1]) / 15
    assert float(((counts - slots * share) ** 2 / (slots * share)).sum()) < 16.3  # 0.999 quantile, 3 degrees


@given(capacities, phases)
def test_a_decay_of_one_is_uniform(capacity: int, phase: int) -> None:
    said = parse_lag("geometric:1.0", capacity).probabilities(phase, capacity)
    assert said == pytest.approx(read_lag("uniform").probabilities(phase, capacity))


@pytest.mark.parametrize(
    ("text", "distribution"),
    [
        ("poisson:2.5", scipy.stats.poisson(2.5)),
        ("poisson:40", scipy.stats.poisson(40)),
        ("lognormal:1.5", scipy.stats.lognorm(1.0, scale=1.5)),
        ("lognormal[median=3,sigma=0.4]", scipy.stats.lognorm(0.4, scale=3.0)),
    ],
)
def test_lags_follow_scipys_distribution_cut_off_at_the_buffer(text: str, distribution: Any) -> None:
    capacity, phase, slots = 8, 50, 40_000
    if hasattr(distribution, "pmf"):
        share = distribution.pmf(np.arange(capacity))
    else:  # a time, of which the whole phases count
        share = np.diff(distribution.cdf(np.arange(capacity + 1)))
    share = share / share.sum()
    model = parse_lag(text, capacity)
    said = model.probabilities(phase, capacity)
    assert [said.get(phase - lag, 0.0) for lag in range(capacity)] == pytest.approx(share.tolist(), abs=1e-12)
    counts = np.bincount(phase - versions_of(model, capacity, phase, slots), minlength=capacity)
    assert counts / slots == pytest.approx(share, abs=5 * 0.5 / slots**0.5)


def test_a_distribution_beyond_the_buffer_gives_the_oldest() -> None:
    assert parse_lag("lognormal[median=1e9,sigma=0.1]", 4).probabilities(20, 4) == {17: 1.0}
    assert max(parse_lag("poisson:900", 4).probabilities(20, 4).items(), key=lambda vp: vp[1])[0] == 17


def test_the_same_actors_are_slow_in_every_phase() -> None:
    model = parse_lag("slow_actors[lag=3,every=4,fast=1]", 4)
    for phase in (9, 10, 57):
        lags = phase - versions_of(model, 4, phase, 8, seed=phase)
        assert lags.tolist() == [1, 1, 1, 3, 1, 1, 1, 3]
    assert model.probabilities(9, 4) == {6: 0.25, 8: 0.75}
    assert versions_of(model, 4, 2, 4).tolist() == [1, 1, 1, 0], "before that many phases have passed"
    assert parse_lag("slow_actors:0", 1).probabilities(5, 1) == {5: 1.0}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("poisson:-1", "mean must be 0 or above, not -1"),
        ("lognormal:0", "median must be above 0, not 0"),
        ("lognormal[median=1,sigma=0]", "sigma must be above 0, not 0"),
        ("slow_actors:8", "needs a buffer of at least K=9"),
        ("slow_actors[lag=1,fast=2]", "fast must be from 0 to `lag`, not 2"),
    ],
)
def test_numbers_that_make_no_lag_are_refused(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse_lag(text, 8)


def test_a_share_too_small_for_a_number_is_no_share() -> None:
    assert set(read_lag("geometric:1e-300").probabilities(20, 8)) == {20, 19}


@given(st.sampled_from(["uniform", "oldest", "geometric:0.7"]), capacities, phases, st.integers(1, 90), seeds)
def test_after_a_sync_nothing_older_is_used(text: str, capacity: int, phase: int, period: int, seed: int) -> None:
    synced = parse_lag(f"{text}/sync:{period}", capacity)
    lag = phase - versions_of(synced, capacity, phase, 20, seed)
    assert lag.max() <= phase % period
    assert synced.oldest(phase) == phase - phase % period
    if phase % period == 0:
        assert synced.probabilities(phase, capacity) == {phase: 1.0}


@given(st.sampled_from(["uniform", "oldest", "geometric:0.7"]), capacities, phases)
def test_a_sync_that_never_comes_changes_nothing(text: str, capacity: int, phase: int) -> None:
    plain, synced = read_lag(text), read_lag(f"{text}/sync:1000")
    assert synced.probabilities(phase, capacity) == plain.probabilities(phase, capacity)
    one, other = (versions_of(m, capacity, phase, 9, 1) for m in (synced, plain))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("capacity", [1, 2, 9])
def test_the_oldest_version_is_k_minus_one_phases_behind(capacity: int) -> None:
    assert lags_of("oldest", capacity, 12) == [min(phase, capacity - 1) for phase in range(12)]
    assert lags_of("oldest/sync:3", 9, 12) == lags_of("fixed:8/sync:3", 9, 12)


def test_a_sync_alone_is_a_sawtooth() -> None:
    assert lags_of("sync:3", 3, 8) == [0, 1, 2, 0, 1, 2, 0, 1] == lags_of("fixed:2/sync:3", 3, 8)


def test_a_sync_restarts_the_draws_of_its_model() -> None:
    """Phase 18 is two after the sync at 16: three versions, of which a buffer of two keeps the newest."""

    def shares(text: str, phase: int, capacity: int) -> dict[int, float]:
        return parse_lag(text, capacity).probabilities(phase, capacity)

    assert shares("uniform/sync:8", 18, 8) == {16: 1 / 3, 17: 1 / 3, 18: 1 / 3}
    assert shares("uniform/sync:8", 18, 2) == {17: 1 / 2, 18: 1 / 2}
    assert shares("fixed:5/sync:8", 18, 6) == {16: 1.0}
    assert shares("geometric:0.5/sync:8", 17, 6) == pytest.approx({17: 2 / 3, 16: 1 / 3})


def test_in_flight_weights_become_newer_by_one_up_to_the_newest() -> None:
    """Rows of ten tokens in segments of four: three segments, from any of the four versions 6 to 9."""
    answer = parse_lag("inflight:4", 4).assign(Draw(9, 200, 4, length=10, seed=0, key=(9,)))
    assert answer.every == 4
    rows = {tuple(row) for row in answer.versions.tolist()}
    assert rows == {(6, 7, 8), (7, 8, 9), (8, 9, 9), (9, 9, 9)}
    assert parse_lag("inflight:10", 4).assign(Draw(9, 5, 4, length=10)).versions.shape == (5, 1)


@given(capacities, phases)
def test_the_buffer_holds_the_newest_k_versions(capacity: int, phase: int) -> None:
    buffer = buffer_at(capacity, phase)
    held = [version for version in range(phase + 1) if version in buffer]
    assert held == list(range(max(0, phase + 1 - capacity), phase + 1))
    assert buffer.newest.phase == phase
    assert [buffer[version].gradient_step for version in held] == [10 * version for version in held]
    restored = PolicyBuffer(capacity)
    restored.load_state_dict(buffer.state_dict())
    assert restored.state_dict() == buffer.state_dict()
