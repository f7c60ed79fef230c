"""Lag models against simulations of the systems' own code, row by row: versions, order, and what is dropped.

Each simulation is written from the source at the commit and lines that it names, and from nothing else.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import admission_sources as admission
import buffer_sources as buffers
import dropping_sources as dropping
import numpy as np
import pytest
import suspended_sources as suspended
import whole_batch_sources as whole_batches
from source_clock import System, assert_same_rows

from staleharness.lag import read_lag
from staleharness.rollout_schedule import NEVER, Demand

SMALL = Demand(phases=24, groups=6, rows=2, length=50, seed=7)
LOADS = ["slots=6.0", "slots=6.0,cv=2.0", "slots=6.0,row_time=0.2", "slots=6.0,row_time=3.0,cv=1.0"]


def check(system: type[System], text: str, in_any_order: bool = False, demand: Demand = SMALL, **options: Any) -> None:
    assert_same_rows(text, demand, system(text, demand, **options).run(), in_any_order)


@pytest.mark.parametrize("load", [*LOADS, "slots=6.0,sync_time=0.3"])
@pytest.mark.parametrize("ratio", [0, 0.5, 1, 1.5, 2, 3], ids=str)
def test_roll_flash_is_what_roll_does(ratio: float, load: str) -> None:
    """The lag is the ratio, and nothing is dropped."""
    text = f"roll_flash[async_generation_ratio={ratio},{load}]"
    check(admission.Roll, text, in_any_order=True, ratio=ratio)
    plan = read_lag(text).schedule(SMALL)
    assert plan.ledger["rows"]["dropped_stale"] == plan.ledger["rows"]["dropped_full"] == 0
    late = plan.phase > 4
    assert (plan.phase - plan.oldest)[late & (plan.phase != NEVER)].mean() == ratio


@pytest.mark.parametrize("load", [*LOADS, "slots=1.0", "slots=2.0,cv=1.0"])
@pytest.mark.parametrize("bound", [0, 1, 3])
def test_admission_by_staleness_is_what_areal_and_skyrl_do(bound: int, load: str) -> None:
    check(admission.AReaL, f"areal[eta={bound},{load}]", in_any_order=True, eta=bound)
    check(admission.SkyRL, f"skyrl[max_staleness_steps={bound},{load}]", most=bound)


@pytest.mark.parametrize("load", [*LOADS, "slots=2.0,cv=1.0"])
@pytest.mark.parametrize("staleness, window", [(0, 0.0), (1, 0.3), (3, 0.3), (4, 1.0)])
def test_windowed_fifo_is_what_torchtitan_does(staleness: int, window: float, load: str) -> None:
    text = f"windowed_fifo[staleness={staleness},window={window},{load}]"
    width = max(1, math.floor(window * (staleness + 1) * SMALL.groups))
    check(admission.Torchtitan, text, in_any_order=True, staleness=staleness, window=width)


@pytest.mark.parametrize("load", [*LOADS, "slots=1.0", "slots=12.0,row_time=4.0,cv=1.0"])
@pytest.mark.parametrize("target, bound", [(1, 8), (1, 2), (1, 1), (2, 3)])
def test_prime_rl_is_what_its_orchestrator_does(target: int, bound: int, load: str) -> None:
    text = f"prime_rl[target_lag={target},max_off_policy_steps={bound},{load}]"
    check(admission.PrimeRL, text, in_any_order=True, target=target, bound=bound)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("threshold, trigger", [(0.0, 1), (0.1, 4), (0.5, 2), (1.0, 1)])
def test_verl_fully_async_is_what_its_rollouter_does(threshold: float, trigger: int, load: str) -> None:
    text = f"verl_fully_async[staleness_threshold={threshold},trigger_parameter_sync_step={trigger},{load}]"
    check(admission.VerlFullyAsync, text, threshold=threshold, trigger=trigger)


@pytest.mark.parametrize("load", [*LOADS, "slots=1.0", "slots=2.0,cv=1.0"])
@pytest.mark.parametrize(
    "max_lag, interval, ring", [(0, 1, 1), (2, 1, 1), (1, 3, 1), (-1, 1, 1), (-1, 1, 2.5), (-1, 2, 1)]
)
def test_pipeline_rl_is_what_its_actor_and_ring_do(max_lag: int, interval: int, ring: float, load: str) -> None:
    text = f"pipeline_rl[max_lag={max_lag},weight_update_interval={interval},buffer={ring},{load}]"
    check(dropping.PipelineRL, text, max_lag=max_lag, interval=interval, ring_size=int(ring * SMALL.groups))


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("sampler", ["in_order", "weight_fifo", "ready_first"])
@pytest.mark.parametrize("window", [0, 1, 3])
def test_nemo_rls_gated_samplers_are_what_its_controller_does(sampler: str, window: int, load: str) -> None:
    text = f"nemo_rl[max_staleness={window},sampler={sampler},{load}]"
    check(buffers.NeMoRL, text, in_any_order=True, sampler=sampler, window=window)


@pytest.mark.parametrize("load", [*LOADS, "slots=2.0,cv=1.0", "slots=3.0,row_time=2.0,cv=1.0"])
@pytest.mark.parametrize("window, buffered", [(0, 2.0), (1, 3.0), (2, 6.0)])
def test_nemo_rls_windowed_sampler_evicts_and_aborts(window: int, buffered: float, load: str) -> None:
    text = f"nemo_rl[max_staleness={window},sampler=windowed,buffered={buffered},{load}]"
    options = {"window": window, "capacity": int(buffered * SMALL.groups), "sampler": "windowed"}
    check(buffers.NeMoRL, text, in_any_order=True, **options)


@pytest.mark.parametrize("load", ["slots=1.0", "slots=2.0,cv=2.0", "slots=1.0,row_time=0.3", "slots=3.0,row_time=2.0"])
@pytest.mark.parametrize("size, interval", [(1, 1), (3, 1), (4, 2)])
def test_rllibs_queues_are_what_its_learners_do(size: int, interval: int, load: str) -> None:
    impala = f"rllib_impala[learner_queue_size={size},broadcast_interval={interval},{load}]"
    check(buffers.RLlib, impala, size=size, interval=interval)
    appo = f"rllib_appo[circular_buffer_num_batches={size},broadcast_interval={interval},{load}"
    for k in (1, 2, 3):
        text = f"{appo},circular_buffer_iterations_per_batch={k}]"
        options = {"size": size, "interval": interval, "circular": True, "iterations": k, "reuses": k > 1}
        check(buffers.RLlib, text, **options)
        plan = read_lag(text).schedule(SMALL)
        assert k > 1 or plan.reused is None
        uses = np.bincount(np.concatenate([plan.trained_in(phase) for phase in range(SMALL.phases)]))
        assert uses.max() <= k and uses.sum() == SMALL.phases * SMALL.groups * SMALL.rows


@pytest.mark.parametrize("load", ["slots=1.0", "slots=2.0,cv=2.0", "slots=1.0,row_time=0.3", "slots=3.0,row_time=2.0"])
@pytest.mark.parametrize("n, max_lag", [(1, -1), (2, -1), (2, 2), (3, 1), (3, 3)])
def test_sample_factory_is_what_its_batcher_does(n: int, max_lag: int, load: str) -> None:
    text = f"sample_factory[num_batches_to_accumulate={n},max_lag={max_lag},{load}]"
    check(buffers.SampleFactory, text, buffers=n, bound=max_lag if max_lag > 0 else math.inf)


@pytest.mark.parametrize("load", ["slots=1.0", "slots=2.0,cv=2.0", "slots=2.0,row_time=0.3", "slots=1.0,row_time=2.0"])
def test_whole_batches_are_what_their_loops_do(load: str) -> None:
    check(whole_batches.Cleanba, f"cleanba[{load}]")
    check(whole_batches.VerlOneStepOff, f"verl_one_step_off[{load}]")
    for every in (1, 3):
        check(whole_batches.Slime, f"slime[update_weights_interval={every},{load}]", interval=every)


@pytest.mark.parametrize("load", ["cv=0.5", "cv=2.0", "row_time=0.3", "row_time=2.0"])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("partial", [False, True])
def test_openrlhf_async_is_what_its_actors_do(size: int, partial: bool, load: str) -> None:
    text = f"openrlhf_async[async_queue_size={size},partial_rollout={str(partial).lower()},{load}]"
    check(whole_batches.OpenRLHF, text, tokens=size, partial=partial, room=SMALL.groups)


@pytest.mark.parametrize("load", ["cv=0.5", "cv=2.0", "row_time=0.3", "row_time=3.0,cv=1.0"])
@pytest.mark.parametrize("most, every", [(1, 1), (2, 1), (4, 1), (1, 3), (2, 2)])
def test_trl_async_grpo_is_what_its_queue_does(most: int, every: int, load: str) -> None:
    demand = Demand(phases=24, groups=6, rows=1, length=50, seed=7)  # rows begin one by one
    text = f"trl_async_grpo[max_staleness={most},weight_sync_steps={every},{load}]"
    check(dropping.TRLAsyncGRPO, text, demand=demand, most=most, every=every, room=most * demand.groups)


@pytest.mark.parametrize("load", [*LOADS, "slots=9.0,row_time=4.0,cv=1.5"])
@pytest.mark.parametrize("strategy", ["drop", "wait"])
@pytest.mark.parametrize("threshold, warm_up", [(8, 1), (2, 1), (3, 2), (1, 0), (4, 3)])
def test_verl_v1_is_what_its_replay_buffer_does(threshold: int, warm_up: int, strategy: str, load: str) -> None:
    options = f"max_off_policy_threshold={threshold},num_warmup_batches={warm_up},max_off_policy_strategy={strategy}"
    text = f"verl_v1[{options},{load}]"
    waits = strategy == "wait"
    check(dropping.VerlV1, text, in_any_order=True, threshold=threshold, warm_up=warm_up, waits=waits)


@pytest.mark.parametrize("load", ["cv=0.5", "cv=2.0", "row_time=0.3", "row_time=3.0,cv=1.0"])
@pytest.mark.parametrize("bound, capacity, concurrent", [(-1, 2.0, 1.0), (0, 2.0, 1.0), (1, 1.0, 2.0), (2, 2.5, 4.0)])
@pytest.mark.parametrize("on_stale", ["drop_group", "requeue"])
@pytest.mark.parametrize("granularity", ["sample", "group"])
def test_miles_is_what_its_worker_and_buffer_do(
    granularity: str, on_stale: str, bound: int, capacity: float, concurrent: float, load: str
) -> None:
    rules = f"max_weight_staleness={bound},on_stale={on_stale},buffer={capacity},concurrent={concurrent}"
    text, room = f"miles[granularity={granularity},{rules},{load}]", int(concurrent * SMALL.groups)
    options: dict[str, Any] = {"retries": on_stale == "requeue", "by_sample": granularity == "sample"}
    options |= {"bound": bound, "capacity": int(capacity * SMALL.groups), "room": room}
    check(dropping.Miles, text, in_any_order=True, **options)  # it sorts a batch by its prompts


@pytest.mark.parametrize("load", ["slots=1.0", *LOADS])
@pytest.mark.parametrize("steps", [1, 2, 4])
def test_open_instruct_is_what_its_preparation_does(steps: int, load: str) -> None:
    check(dropping.OpenInstruct, f"open_instruct[async_steps={steps},{load}]", in_any_order=True, steps=steps)


@pytest.mark.parametrize("load", ["cv=0.5", "cv=2.0", "row_time=0.3", "row_time=3.0,cv=1.0"])
@pytest.mark.parametrize("bound", [0, 1, 4])
def test_tinker_is_what_its_training_loop_does(bound: int, load: str) -> None:
    text = f"tinker[max_steps_off_policy={bound},on_stale=drop_group,{load}]"
    check(dropping.Tinker, text, bound=bound, room=SMALL.groups)


@pytest.mark.parametrize("bound", [0, 1, 4])
@pytest.mark.parametrize("row_time", [0.3, 0.7, 1.3, 3.1])
def test_tinker_sends_prompts_again_as_its_loop_does(row_time: float, bound: int) -> None:
    """Row by row where all prompts take as long, so that it does not matter which of them comes again."""
    text = f"tinker[max_steps_off_policy={bound},row_time={row_time},cv=0]"
    check(dropping.Tinker, text, bound=bound, room=SMALL.groups, requeues=True)


@pytest.mark.parametrize("load", ["cv=0.5", "cv=2.0", "row_time=0.3", "row_time=3.0,cv=1.0"])
@pytest.mark.parametrize("bound", [0, 1, 4])
def test_tinkers_order_of_prompts_moves_its_lag_little(bound: int, load: str) -> None:
    """The model sends a prompt again at once, the source behind a batch of others: a mean lag up to 0.15 steps higher,
    and a share of groups thrown away that differs by up to 0.07."""
    text, demand = f"tinker[max_steps_off_policy={bound},{load}]", replace(SMALL, phases=300)
    groups = dropping.Tinker(text, demand, bound=bound, room=SMALL.groups, requeues=True).run()
    plan = read_lag(text).schedule(demand)
    lag = (plan.phase - plan.oldest)[plan.phase != NEVER].mean()
    rows = plan.ledger["rows"]
    source_lag = np.mean([group.step - group.version for group in groups if group.step != NEVER])
    dropped = np.mean([group.left != NEVER for group in groups])
    assert -0.01 < source_lag - lag < 0.15
    assert abs(dropped - rows["dropped_stale"] / rows["generated"]) < 0.07


@pytest.mark.parametrize("load", [*LOADS, "slots=12.0,row_time=4.0,cv=1.0"])
@pytest.mark.parametrize("buffer", [1.0, 1.5, 3.0])
def test_laminar_is_what_its_paper_says(buffer: float, load: str) -> None:
    text = f"laminar[buffer={buffer},{load}]"
    check(buffers.Laminar, text, in_any_order=True, capacity=int(buffer * SMALL.groups))  # its trainer samples


@pytest.mark.parametrize("load", ["cv=0.5", "cv=2.0", "row_time=0.3", "row_time=3.0,cv=1.0"])
@pytest.mark.parametrize("delay", [0, 1, 2, 4])
def test_llamarl_is_what_its_paper_says(delay: int, load: str) -> None:
    check(whole_batches.LlamaRL, f"llamarl[delay={delay},{load}]", delay=delay)


@pytest.mark.parametrize("load", ["cv=0.5", "cv=2.0", "row_time=0.3", "row_time=3.0,cv=1.0", "sync_time=0.3"])
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("oversample", [1.0, 1.5, 2.0, 4.0])
def test_partial_rollouts_are_what_slime_does(oversample: float, mask: bool, load: str) -> None:
    text = f"partial[oversample={oversample},mask={str(mask).lower()},{load}]"
    check(suspended.SlimePartial, text, over=round(oversample * SMALL.groups), mask=mask)


@pytest.mark.parametrize("load", ["cv=0.5", "cv=2.0", "row_time=3.0,cv=1.0", "sync_time=0.3"])
@pytest.mark.parametrize("modes", ["B/B", "G/G", "G/B", "R/G", "R/B"])
@pytest.mark.parametrize("lag", [-1.0, 0.0, 1.0, 1.5, 3.0])
def test_megatron_is_what_its_rollout_pipeline_does(lag: float, modes: str, load: str) -> None:
    """The lag of G/B is at most L, as that of B/B: a group's slot is not free before its batch is taken."""
    if modes == "G/B" and lag < 0:
        return  # a batch never gets slots for all of its groups
    submit, consume = modes.split("/")
    batch = SMALL.rows * SMALL.groups
    unit = {"R": 1, "G": SMALL.rows, "B": batch}[submit]
    tasks = max(1, round((lag + 1) * batch / unit))
    text = f"megatron[lag={lag},submit={submit},consume={consume},{load}]"
    check(suspended.Megatron, text, submit=submit, consume=consume, tasks=tasks)
    if modes in ("B/B", "G/B"):
        plan = read_lag(text).schedule(SMALL)
        assert (plan.phase - plan.oldest)[plan.phase != NEVER].max() == math.ceil(tasks * unit / batch) - 1
