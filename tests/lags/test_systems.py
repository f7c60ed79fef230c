"""Models of real systems: each against a bound that it states, a hand-worked case, or another way to reckon it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from staleharness.errors import UserError
from staleharness.lag import read_lag
from staleharness.pipeline_lag_model import PipelineLag
from staleharness.rollout_schedule import NEVER, Demand, Schedule

LONG = Demand(phases=150, groups=16, rows=1, length=100, seed=3)


def schedule_of(text: str, **changed: Any) -> Schedule:
    return read_lag(text).schedule(Demand(**{**vars(LONG), **changed}))


def lags(plan: Schedule, since: int = 0) -> NDArray[np.int64]:
    """Return the lag of the first decision of each row that is trained on, from a phase on."""
    rows = plan.phase >= max(since, 0)
    return (plan.phase - plan.oldest)[rows]


def of_phases(plan: Schedule) -> list[set[int]]:
    return [set((phase - plan.oldest[plan.phase == phase]).tolist()) for phase in range(plan.phase.max() + 1)]


@pytest.mark.parametrize("load", ["", "row_time=5.0", "row_time=0.1,cv=2.0", "sync_time=0.4"])
@pytest.mark.parametrize(
    "text, lag",
    [
        ("cleanba", 1),
        ("verl_one_step_off", 1),
        ("llamarl:1", 1),
        ("llamarl:3", 3),
        ("slime", 1),
        ("nemo_rl:0", 0),
        ("megatron:0", 0),
        ("llamarl:0", 0),
        ("megatron:-1", 0),
    ],
)
def test_systems_in_lockstep_have_one_lag_at_any_load(text: str, lag: int, load: str) -> None:
    """Rows have that lag once that many phases have passed."""
    name, _, first = text.partition(":")
    key = next(iter(read_lag(name).hyper_parameter_types()))
    options = ",".join(filter(None, (f"{key}={first}" if first else "", load)))
    plan = schedule_of(f"{name}[{options}]" if options else name, phases=40)
    assert of_phases(plan) == [{min(phase, lag)} for phase in range(40)]


@pytest.mark.parametrize("every", [1, 2, 5])
def test_slime_is_one_batch_ahead_of_weights_sent_every_n_steps(every: int) -> None:
    """Batch b begins as b − 1 begins to train, with the weights sent last: version b − 1 down to a multiple of
    `every`, but for the first."""
    plan = schedule_of(f"slime:{every}", phases=40)
    assert of_phases(plan) == [{0}] + [{b - (b - 1) // every * every} for b in range(1, 40)]


@pytest.mark.parametrize(
    "text", ["areal:{}", "skyrl:{}", "nemo_rl[max_staleness={},sampler=ready_first]", "pipeline_rl[max_lag={}]"]
)
@pytest.mark.parametrize("bound", [1, 2, 5])
def test_where_admission_binds_the_mean_lag_is_its_bound(text: str, bound: int) -> None:
    plan = schedule_of(text.format(bound))
    assert lags(plan, 30).mean() == pytest.approx(bound, rel=0.02)
    assert lags(plan).max() > bound or bound == 5  # what began first is taken first where much waits
    assert plan.ledger["rows"]["dropped_stale"] == plan.ledger["rows"]["dropped_full"] == 0


@pytest.mark.parametrize("eta", [0, 1, 3])
def test_areal_admits_no_group_that_its_bound_forbids(eta: int) -> None:
    """The version of the n-th group is at least n/groups − 1 − eta."""
    plan = schedule_of(f"areal[eta={eta},row_time=0.3]")
    assert (plan.group // LONG.groups <= plan.oldest + eta).all()
    assert (plan.group // LONG.groups == plan.oldest + eta).any()


def test_areal_without_interruption_keeps_a_row_to_its_version() -> None:
    cut, whole = schedule_of("areal[row_time=4.0]"), schedule_of("areal[row_time=4.0,interruptible=false]")
    assert (whole.newest == whole.oldest).all() and (cut.newest >= cut.oldest).all()
    # A row that begins as weights arrive has no decision with those from before
    assert set((cut.oldest - whole.oldest).tolist()) <= {0, 1} and (cut.oldest - whole.oldest).mean() < 0.05
    assert (cut.phase - cut.newest)[cut.phase != NEVER].mean() < (whole.phase - whole.newest)[
        whole.phase != NEVER
    ].mean()


@pytest.mark.parametrize("staleness, window", [(2, 0.0), (2, 0.3), (3, 0.3), (1, 1.0)])
def test_windowed_fifo_keeps_its_bound_and_reaches_it(staleness: int, window: float) -> None:
    """S + ⌈(W − 1)/P⌉ with W = ⌊window · (S + 1) P⌋, at least 1."""
    w = max(1, math.floor(window * (staleness + 1) * 16))
    plan = schedule_of(f"windowed_fifo[staleness={staleness},window={window},cv=3.0]", phases=400)
    assert lags(plan).max() == staleness + math.ceil((w - 1) / 16)


@pytest.mark.parametrize("sampler", ["in_order", "weight_fifo", "ready_first", "windowed"])
def test_nemo_rls_samplers(sampler: str) -> None:
    """Only ready_first lets a straggler become older than the bound, and only windowed throws any away."""
    plan = schedule_of(f"nemo_rl[max_staleness=2,sampler={sampler},cv=1.0]")
    assert bool(lags(plan).max() > 2) is (sampler == "ready_first")
    assert (plan.ledger["rows"]["dropped_stale"] > 0) is (sampler == "windowed")
    made = plan.group[plan.phase != NEVER][np.argsort(plan.phase[plan.phase != NEVER], kind="stable")]
    assert (np.diff(made // 16) >= 0).all() == (sampler == "in_order")
    if sampler == "weight_fifo":
        by_phase = [plan.oldest[plan.phase == phase] for phase in range(LONG.phases)]
        assert all(a.max() <= b.min() for a, b in itertools.pairwise(by_phase))


def test_prime_rl_counts_batches_that_are_finished() -> None:
    """With rows that take hardly any time the gate alone decides: `target_lag` batches wait while one trains, and what
    was under way when the gate closed comes on top, less than the slots hold."""
    for target in (1, 3):
        for slots in (1, 2):
            quick = schedule_of(f"prime_rl[target_lag={target},row_time=0.01,cv=0.0,slots={slots}]")
            assert lags(quick, 10).min() == target
            assert target + slots - 1 < lags(quick, 10).max() <= target + slots
    begun = schedule_of("areal[eta=1,row_time=0.01,cv=0.0,slots=2]")  # a cap on what has begun leaves nothing on top
    assert set(lags(begun, 10).tolist()) == {1}


def test_a_bound_of_prime_rl_that_no_row_reaches_does_nothing() -> None:
    """A cap is not a lag: the mean follows the bound only as long as it is small."""
    plans = {bound: schedule_of(f"prime_rl[max_off_policy_steps={bound},slots=3.0]") for bound in (1, 2, 30, 60)}
    assert lags(plans[1], 30).mean() < lags(plans[2], 30).mean() < lags(plans[30], 30).mean()
    np.testing.assert_array_equal(plans[30].phase, plans[60].phase)
    assert [plan.ledger["rows"]["dropped_stale"] > 0 for plan in plans.values()] == [True, True, False, False]


def test_what_becomes_too_old_under_way_is_stopped() -> None:
    """So a dropped row costs fewer decisions than a whole one, and none is older than the bound at its last one."""
    text = "prime_rl[max_off_policy_steps=2,slots=3.0,cv=1.5]"
    plan = schedule_of(text)
    dropped, whole = plan.ledger["rows"]["dropped_stale"], LONG.length
    assert 0 < plan.ledger["decisions"]["dropped_stale"] < dropped * whole
    ends = plan.end[plan.first[1:] - 1]
    cut = (plan.phase == NEVER) & (plan.finished != NEVER) & (ends < whole)
    assert cut.sum() > 0 and (plan.left[cut] == plan.finished[cut]).all()
    # Of the batch that is made up, which is one ahead of the trainer, or its own where the trainer waits
    late = (plan.left - plan.oldest)[cut]
    assert set(late.tolist()) <= {1, 2, 3} and (late >= 2).mean() > 0.9
    held = schedule_of(f"{text[:-1]},on_stale=mask_tokens]")
    assert (held.end[held.first[1:] - 1][held.phase != NEVER] == whole).all()


def test_areal_says_that_its_bound_is_one_on_the_mean() -> None:
    said = r"give K=\d+ \(eta bounds the mean lag; a slow row is passed by others, and older\)"
    with pytest.raises(UserError, match=said):
        read_plan("areal[eta=4]", 5)


def read_plan(text: str, capacity: int) -> None:
    plan, model = schedule_of(text), read_lag(text)
    plan.check_capacity(capacity, f"LAG={text}", model.longest)


def test_verl_begins_a_round_with_the_share_of_its_threshold() -> None:
    """Weights are sent every 4 steps and 1.5 × 4 batches may begin on each: half of the next four are 4 steps older."""
    plan = schedule_of("verl_fully_async[staleness_threshold=0.5,row_time=0.01,slots=1]", phases=80)
    counts = np.bincount(lags(plan, 20), minlength=6)
    assert plan.oldest[plan.phase != NEVER].tolist() == (plan.oldest[plan.phase != NEVER] // 4 * 4).tolist()
    assert counts.tolist() == [0, 0, 240, 240, 240, 240]
    none = schedule_of("verl_fully_async[staleness_threshold=0,row_time=0.01,slots=1]", phases=80)
    assert np.bincount(lags(none, 20)).tolist() == [240, 240, 240, 240]


def test_verl_without_partial_rollout_drains_before_new_weights() -> None:
    partial, whole = (
        schedule_of(f"verl_fully_async[row_time=3.0,slots=6.0,partial_rollout={switch}]")
        for switch in ("true", "false")
    )
    assert (partial.newest > partial.oldest).any()
    assert (whole.newest == whole.oldest).all()


def test_rllibs_queue_of_three_drops_its_oldest_batch() -> None:
    """Rows of a quarter of a step, one batch at a time: four batches a step are made, and three are kept. What trains
    is the oldest of the three: made in the second quarter of the last step, with the weights from before it."""
    plan = schedule_of("rllib_impala[slots=1,row_time=0.25,cv=0.0]")
    assert set(lags(plan, 10).tolist()) == {1}
    assert plan.ledger["rows"]["dropped_full"] / plan.ledger["rows"]["generated"] == pytest.approx(3 / 4, abs=0.02)
    slow = schedule_of("rllib_impala[slots=1,row_time=1.0,cv=0.0]")  # as fast as the learner: nothing is dropped
    assert slow.ledger["rows"]["dropped_full"] == 0
    seldom = schedule_of("rllib_impala[learner_queue_size=3,broadcast_interval=4,slots=1,row_time=0.25,cv=0.0]")
    assert set(lags(seldom, 12).tolist()) == {1, 2, 3, 4}


def test_rllibs_circular_buffer_draws_any_of_its_batches() -> None:
    """Five batches a step, of which four are dropped, and room for ten: the last two steps' are drawn about alike,
    where a queue of ten has the oldest."""
    plan = schedule_of("rllib_appo[circular_buffer_num_batches=10,slots=1,row_time=0.2,cv=0.1]", phases=400)
    share = np.bincount(lags(plan, 10)) / (390 * LONG.groups)
    assert 0.35 < share[1] < 0.65 and 0.35 < share[2] < 0.65
    assert plan.ledger["rows"]["dropped_full"] / plan.ledger["rows"]["generated"] == pytest.approx(4 / 5, abs=0.03)
    queue = schedule_of("rllib_impala[learner_queue_size=10,slots=1,row_time=0.2,cv=0.1]")
    assert (lags(queue, 10) >= 2).mean() > 0.9


def test_sample_factorys_actors_stand_still_while_its_batches_last() -> None:
    """Two batches, and rows alike that take less than a step: one trains, one waits, and nothing else is under way. So
    what trains began at the beginning of the step before. With a bound of 1, only decisions of the present version
    are in the loss."""
    plan = schedule_of("sample_factory[slots=1,row_time=0.3,cv=0.0]")
    assert set(lags(plan, 5).tolist()) == {1}
    assert plan.ledger["rows"]["dropped_full"] == plan.ledger["rows"]["dropped_stale"] == 0
    young = schedule_of("sample_factory[slots=2,row_time=0.6,cv=0.5,max_lag=1]")
    assert set(young.kept.tolist()) == {False, True}
    row = np.repeat(np.arange(len(young)), np.diff(young.first))
    trained = young.phase[row] != NEVER
    np.testing.assert_array_equal(young.kept[trained], (young.phase[row] == young.version)[trained])


def test_pipeline_rls_lag_is_what_a_rows_time_makes_it() -> None:
    """Rows of n steps, half as many as could be trained: the trainer takes them as they come, every other step's time.
    A row spends n/2 of those on its way and half a one until its batch is full; its last decision only the latter."""
    for steps in (4, 8):
        plan = schedule_of(f"pipeline_rl[slots={steps / 2},row_time={steps}]")
        assert lags(plan, 20).mean() == pytest.approx(steps / 2 + 0.5, abs=0.3)
        assert (plan.phase - plan.newest)[plan.phase > 20].mean() == pytest.approx(0.5, abs=0.3)


@pytest.mark.parametrize("warm_up, threshold", [(1, 2), (2, 4)])
def test_verl_v1_drops_or_waits_for_what_becomes_too_old(warm_up: int, threshold: int) -> None:
    text = f"verl_v1[num_warmup_batches={warm_up},max_off_policy_threshold={threshold},cv=2.0,slots=6.0"
    drop, wait = schedule_of(f"{text}]"), schedule_of(f"{text},max_off_policy_strategy=wait]")
    assert lags(drop).max() == lags(wait).max() == threshold - 1
    assert drop.ledger["rows"]["dropped_stale"] > 0 == wait.ledger["rows"]["dropped_stale"]


@pytest.mark.parametrize("most, depth", [(0, 0), (2, 1), (2, 2), (4, 1)])
def test_tinkers_pacing_keeps_its_bound_and_drops_nothing(most: int, depth: int) -> None:
    plan = schedule_of(f"tinker[max_steps_off_policy={most},pipeline_depth={depth},cv=2.0]")
    assert plan.ledger["rows"]["dropped_stale"] == 0 and lags(plan).max() == most
    with pytest.raises(UserError, match="pipeline_depth must be at most max_steps_off_policy=1, not 2"):
        read_lag("tinker[max_steps_off_policy=1,pipeline_depth=2]")


def test_a_bound_on_what_is_under_way_is_none_on_lag() -> None:
    assert read_lag("nemo_rl[max_staleness=6,sampler=windowed,buffered=2]").bound(LONG) == 6
    assert read_lag("areal[eta=2.5]").bound(LONG) == 3
    assert read_lag("prime_rl[max_off_policy_steps=6]").bound(LONG) == 6  # target_lag counts what is finished
    assert read_lag("nemo_rl[max_staleness=3,sampler=windowed,on_stale=withhold]").bound(LONG) == 3


def test_weights_that_come_every_few_steps_raise_the_bound() -> None:
    assert read_lag("slime:4").bound(LONG) == lags(schedule_of("slime:4")).max() == 4


@pytest.mark.parametrize("text", ["roll_flash:0.5", "roll_flash:1.5", "roll_flash:2", "megatron[lag=0.5,submit=G]"])
def test_a_bound_of_part_of_a_batch_is_that_of_the_next_phase(text: str) -> None:
    demand = Demand(phases=60, groups=16, rows=2, length=9, seed=1)
    model = read_lag(text)
    assert lags(model.schedule(demand), 20).max() == model.bound(demand)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_openrlhfs_batches_are_as_old_as_its_queue_is_long(size: int) -> None:
    """Rows that take less than a step: all batches of the queue are made in advance."""
    plan = schedule_of(f"openrlhf_async[async_queue_size={size},row_time=0.1]", phases=40)
    assert of_phases(plan)[2 * size :] == [{size}] * (40 - 2 * size)


def test_what_is_never_too_old_is_never_dropped() -> None:
    """One batch under way, and rows of one step and a half: nothing is older than two steps."""
    for text in ("tinker[max_steps_off_policy=2,", "miles[max_weight_staleness=2,buffer=1.0,"):
        text += "row_time=1.5,cv=0.1]"
        assert schedule_of(text).ledger["rows"]["dropped_stale"] == 0, text
    quick = schedule_of("tinker[max_steps_off_policy=2,row_time=0.2]")
    assert lags(quick).max() == 2 and quick.ledger["rows"]["dropped_stale"] > 0


@pytest.mark.parametrize("submit", ["B", "G"])
def test_whole_batches_of_megatron_have_at_most_its_lag(submit: str) -> None:
    """Less for rows of a batch that finished before the one ahead of it, so that nothing comes between two versions."""
    plan = schedule_of(f"megatron[lag=2,submit={submit}]", phases=300)
    found = lags(plan, 2)
    assert found.max() == 2 and found.mean() > 1.5
    assert (plan.newest > plan.oldest).any(), "rows under way take new weights"


@pytest.mark.parametrize("lag", [0, 1])
def test_megatrons_laws_in_the_units_of_a_schedule(lag: int) -> None:
    """G/G is (1 + L) in the mean, and R/G that times the tail of a group, E[longest of 4 rows]/E[row]; less 1 for the
    one unit of a batch that takes the place of the last, for it begins with the weights of the step that follows."""
    rng = np.random.default_rng(0)
    tail = rng.lognormal(0, math.sqrt(math.log1p(0.25)), (200_000, 4)).max(1).mean() / math.sqrt(1.25)
    for submit, expected, units in (("G", 1.0, LONG.groups), ("R", tail, 4 * LONG.groups)):
        plan = schedule_of(f"megatron[lag={lag},submit={submit},consume=G]", rows=4, phases=300)
        assert lags(plan, 60).mean() == pytest.approx(expected * (1 + lag) - 1 / units, rel=0.05)


def test_a_partial_rollout_is_cut_at_every_sync() -> None:
    """Twice as many rows as a batch: half of them are one phase older in the mean."""
    plan = schedule_of("partial")
    trained = plan.phase != NEVER
    assert (plan.phase == plan.newest)[trained].all()
    segments = np.diff(plan.first)
    assert (segments == plan.newest - plan.oldest + 1)[trained].all(), "a segment for each version in between"
    assert lags(plan, 30).mean() == pytest.approx(1, abs=0.05)
    assert (lags(schedule_of("partial[oversample=1]")) == 0).all()
    masked = schedule_of("partial[mask=true]")
    row = np.repeat(np.arange(len(masked)), segments)
    expected = (masked.version == masked.phase[row]) | ~trained[row]
    np.testing.assert_array_equal(masked.kept, expected)


@pytest.mark.parametrize("on_stale", ["drop_group", "requeue", "withhold", "drop_sample", "mask_tokens"])
def test_what_becomes_of_stale_rows(on_stale: str) -> None:
    plan = schedule_of(f"queue[max_lag=2,on_stale={on_stale},in_flight=true,cv=1.0]", rows=2)
    row = np.repeat(np.arange(len(plan)), np.diff(plan.first))
    trained = plan.phase[row] != NEVER
    old = plan.phase[row] - plan.version > 2
    kept = trained & plan.kept
    assert not (old & kept).any(), "nothing older than the bound is in the loss"
    rows = plan.ledger["rows"]
    if on_stale in ("drop_group", "requeue"):
        assert rows["dropped_stale"] > 0 and plan.kept.all()
    if on_stale == "withhold":
        assert rows["dropped_stale"] == 0 and plan.kept.all()
    if on_stale == "mask_tokens":
        np.testing.assert_array_equal(plan.kept, ~(old & trained))
        assert plan.ledger["decisions"]["masked"] > 0
    if on_stale == "drop_sample":
        stale_rows = np.isin(row, row[old & trained])
        np.testing.assert_array_equal(plan.kept, ~stale_rows)
        assert rows["masked"] == len(np.unique(row[stale_rows])) > 0
    decisions = {key: n for key, n in plan.ledger["decisions"].items() if key in ("trained", "masked")}
    assert sum(decisions.values()) == LONG.phases * LONG.groups * 2 * LONG.length


def test_a_starving_rule_is_one_line_with_the_time() -> None:
    for text, words in {
        "queue[max_lag=0,sync_time=1e5]": r"\]: the trainer starves at t = \d+\.\d s, before step 1: "
        ".*training steps",
        "prime_rl[max_off_policy_steps=0,sync_time=1e5]": r"starves at t = \d+\.\d s, before step 1: ",
        "megatron[slots=3.0]": "its own rules set the slots; leave them out",
        "queue[capacity=0.5]": "LAG=queue: capacity must be at least 1 batch, not 0.5",
        "queue[full=drop_oldest,max_lag=1,on_stale=withhold]": "on_stale must be another where full drops",
        "megatron[submit=B,consume=G]": "consume must be B where submit is B",
        "megatron[submit=G,lag=-0.5]": "lag must be 0 or above where groups keep their place until a whole batch",
        "areal[eta=-1]": "eta must be 0 or above",
        "areal[eta=inf]": "is not finite",
        "areal[cv=-1]": "cv must be from 0 to 10",
        "areal[row_time=0]": "row_time must be from 1e-6 to 1e6",
        "areal[slow=1.5]": "areal: slow must be from 0 to 1, not 1.5",
        "areal[slow=0.5,slow_factor=0.5]": "areal: slow_factor must be from 1 to 1e6, not 0.5",
        "areal[slow=0.5]": "areal: slow must be above 0 together with slow_factor above 1, not 0.5",
        "areal[slow_factor=2.0]": "slow must be above 0 together with slow_factor above 1, not 0.0",
        "areal[slow=0.01,slow_factor=2.0]": "slow must be enough for some but not all of 32 units of 1 slots, or 1, "
        "not 0.01",
        "cleanba[slow=0.5,slow_factor=2.0,slots=2.5]": "slots must be a multiple of 16 where some are slow, not 40",
        "areal[etta=2]": "unknown option 'etta'; did you mean 'eta'?",
        "arael": "did you mean 'areal'?",
        "prime_rl[on_stale=drop]": "on_stale=drop is not one of drop_group, drop_sample",
    }.items():
        with pytest.raises(UserError, match=words.replace("?", r"\?")) as error:
            schedule_of(text, phases=60)
        assert "\n" not in str(error.value)


def test_probabilities_of_a_simulated_model_are_one_error_line() -> None:
    with pytest.raises(UserError, match=r"LAG=areal:2.0 has no probabilities.*density=mixture needs") as error:
        read_lag("areal:2").probabilities(3, 4)
    assert "\n" not in str(error.value)


LOAD = ["slots", "row_time", "cv", "sync_time"]


def test_options_of_load_have_the_same_names_and_come_last() -> None:
    from staleharness.lag import LAGS

    pipelines = [LAGS[name] for name in LAGS if issubclass(LAGS[name], PipelineLag)]
    assert len(pipelines) >= 18
    for cls in pipelines:
        assert list(cls.hyper_parameter_types())[-7:] == [*LOAD, "pace", "slow", "slow_factor"], cls
    assert read_lag("areal:2") == read_lag("areal[eta=2.0]") and read_lag("areal[cv=1]").text == "areal[cv=1.0]"


def test_a_schedule_depends_on_seed_and_demand_alone() -> None:
    one, other = schedule_of("areal"), schedule_of("areal", seed=4)
    assert len(one) != len(other) or not np.array_equal(one.phase, other.phase)
    longer = schedule_of("areal[interruptible=false]", length=7)
    np.testing.assert_array_equal(longer.phase, schedule_of("areal[interruptible=false]").phase)
