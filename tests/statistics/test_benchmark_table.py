"""StaleBench: place of runs in a protocol, choice of the rate, scores, tests, and who did not learn."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from places import ROOT
from scipy import stats

from staleharness.errors import UserError
from staleharness.statistics.benchmark.benchmark_row import BenchmarkRow, with_tests
from staleharness.statistics.benchmark.benchmark_table import BenchmarkTable, benchmark_table, rank, remarks, verdict
from staleharness.statistics.benchmark.protocol import (
    MethodRuns,
    Protocol,
    ProtocolPlace,
    WidthControl,
    area_of,
    benchmark_command,
    choose_rate,
    chosen_rate,
    count_runs,
    digest_of,
    preview_rates,
    preview_seeds,
    read_protocol,
    runs_by_row,
)
from staleharness.statistics.t_tests_and_intervals import welch
from staleharness.store.stored_run import StoredRun

TOY = Protocol(
    version=1,
    track="toy",
    question="?",
    env=("A", "B"),
    capacity=(1, 4),
    lag="oldest",
    score="sampled",
    seeds=(0, 1, 2, 3, 4),
    tuning_seeds=(100, 101),
    rates=(0.5, 1.0),
    settings={"learning_rate": 0.01, "steps": 10, "hidden": (8, 8)},
    random={"A": 10.0, "B": 0.0},
    reference={"A": 30.0, "B": 2.0},
    source="made up",
    methods=("ppo_clip", "other"),
    controls=(WidthControl("wide", "a wide clip", {"1": "ppo_clip", "4": "ppo_clip[clip=0.5]"}),),
)


def stored_run(
    label: str, env: str, k: int, seed: int, values: list[float], factor: float = 1.0, **spec: Any
) -> StoredRun:
    """A run whose evaluations are evenly spaced and have these values."""
    settings = {"lag": "oldest", "steps": 10, "hidden": [8, 8], "learning_rate": 0.01 * factor}
    if factor != 1.0:
        label = f"{label[:-1]}," if label.endswith("]") else f"{label}["
        label += f"learning_rate={0.01 * factor:g}]"
    spec = {"env": env, "capacity": k, "seed": seed, **settings, **spec}
    name = json.dumps([label, sorted(spec.items())])
    record = {"id": name, "label": label, "spec": spec, "summary": {"tv": 0.1 * k, "ess": 0.9}, "fingerprint": {}}
    run = StoredRun(Path("runs") / "x", record, "")
    run.__dict__["curves"] = {"sampled": (np.arange(len(values), dtype=float), np.array(values))}
    return run


def raw(env: str, score: float) -> float:
    low, high = TOY.random[env], TOY.reference[env]
    return low + score * (high - low)


def method(label: str, means: dict[int, float], spread: float = 0.02, best: float = 1.0) -> list[StoredRun]:
    """All runs of a method: its mean score at each capacity, at the best rate and .3 lower at the other."""
    rng = np.random.default_rng([len(label), int(100 * spread)])
    runs = []
    for k, mean in means.items():
        for env in TOY.env:
            for factor in TOY.rates:
                for seed in (*TOY.tuning_seeds, *(TOY.seeds if factor == best else ())):
                    score = mean - 0.3 * (factor != best) + spread * rng.standard_normal()
                    text = TOY.entry_methods(label)[k]
                    runs.append(stored_run(text, env, k, seed, [raw(env, score)] * 3, factor))
    return runs


def table_of(*methods: list[StoredRun], own: list[StoredRun] | None = None, **options: Any) -> BenchmarkTable:
    everything = {run.id: run for runs in methods for run in runs}
    sources = {"reference": list(everything.values())} | ({"yours": own} if own is not None else {})
    return benchmark_table(TOY, sources, **options)


def test_a_score_is_the_area_under_the_curve_on_the_scale() -> None:
    """Heights 10, 30, 20 over two steps: mean (10 + 30)/2 and (30 + 20)/2 = 22.5, of 10 to 30."""
    assert area_of(TOY, stored_run("m", "A", 1, 0, [10.0, 30.0, 20.0])) == pytest.approx((22.5 - 10) / 20)


def test_a_run_has_a_place_only_under_every_rule() -> None:
    assert TOY.place_of(stored_run("m", "A", 4, 100, [0.0], 0.5)) == ProtocolPlace("A", 4, 100, 0.5, True)
    assert TOY.place_of(stored_run("m", "B", 1, 3, [0.0])) == ProtocolPlace("B", 1, 3, 1.0, False)
    strangers = [
        stored_run("m", "C", 1, 0, [0.0]),
        stored_run("m", "A", 2, 0, [0.0]),
        stored_run("m", "A", 1, 5, [0.0]),
        stored_run("m", "A", 1, 0, [0.0], 2.0),
        stored_run("m", "A", 1, 0, [0.0], steps=11),
        stored_run("m", "A", 1, 0, [0.0], hidden=[8]),
        stored_run("m", "A", 1, 0, [0.0], lag="uniform"),
    ]
    assert [TOY.place_of(run) for run in strangers] == [None] * len(strangers)


def test_the_digest_is_of_rules_and_not_of_words_or_rows() -> None:
    same = [{"question": "why"}, {"methods": ("x",)}, {"controls": ()}, {"source": "elsewhere"}]
    assert {replace(TOY, **change).digest for change in same} == {TOY.digest}
    others = [{"seeds": (0, 1)}, {"reference": {"A": 31.0, "B": 2.0}}, {"settings": {**TOY.settings, "steps": 11}}]
    assert len({replace(TOY, **change).digest for change in others} | {TOY.digest}) == 4


def test_the_ladder_takes_the_best_mean_and_the_middle_on_a_tie() -> None:
    assert choose_rate({0.3: [1.0, 0.0], 1.0: [0.6, 0.6], 3.0: [0.0, 0.5]}) == 1.0
    assert choose_rate({0.3: [0.5], 1.0: [0.5], 3.0: [0.5]}) == 1.0


def test_the_ladder_waits_for_every_tuning_run() -> None:
    runs = method("other", {1: 0.5}, best=0.5)
    members = runs_by_row(TOY, runs)["other", 1]
    assert chosen_rate(TOY, members) == 0.5
    del members.tuning["B", 1.0][101]
    assert chosen_rate(TOY, members) is None
    assert chosen_rate(TOY, members, gaps=True) == 0.5
    assert chosen_rate(TOY, MethodRuns(), gaps=True) is None


def test_reported_runs_never_choose_the_rate() -> None:
    """A rate that is best on the reported seeds alone is not taken."""
    runs = [run for run in method("other", {1: 0.5}) if run.spec["seed"] >= 100]
    runs += [stored_run("other", env, 1, seed, [raw(env, 9.0)] * 2, 0.5) for env in TOY.env for seed in TOY.seeds]
    row = table_of(runs).row("other", 1)
    assert row is not None and (row.rate, row.n, row.score) == (1.0, 0, None)
    assert row.missing == 10


def test_rows_agree_with_independent_statistics() -> None:
    base, other = method("ppo_clip", {1: 1.0, 4: 0.8}), method("other", {1: 0.9, 4: 0.5}, 0.05, best=0.5)
    table = table_of(base, other, method("wide", {1: 1.0, 4: 0.7}))
    row, fresh, baseline = table.row("other", 4), table.row("other", 1), table.row("ppo_clip", 4)
    assert row is not None and fresh is not None and baseline is not None
    pooled = np.sort(np.concatenate(row.columns))
    assert row.score == pytest.approx(pooled[2:8].mean())  # ten runs: the middle six
    assert row.low is not None and row.high is not None and row.low < row.score < row.high
    assert row.retained == pytest.approx(row.score / fresh.score)
    assert row.rate == 0.5 and row.n == 5 and row.missing == 0
    assert row.tv == pytest.approx(0.4) and row.ess == pytest.approx(0.9)
    gaps = [a.mean() - b.mean() for a, b in zip(row.columns, baseline.columns, strict=True)]
    assert row.difference == pytest.approx(np.mean(gaps))
    assert row.loss_p is not None and row.loss_p < 1e-4


def test_holm_is_over_the_other_rows_of_one_capacity() -> None:
    table = table_of(
        *(method(name, {1: 1.0, 4: 0.8 - 0.01 * i}) for i, name in enumerate(("ppo_clip", "other", "wide")))
    )
    at_4 = [row for row in table.rows if row.capacity == 4 and row.p is not None]
    assert [row.method for row in at_4] == ["other", "wide"]
    low, high = sorted(at_4, key=lambda row: row.p or 0.0)
    assert low.holm == pytest.approx(min(1.0, 2 * (low.p or 0.0)))
    assert high.holm == pytest.approx(max(low.holm or 0.0, high.p or 0.0))


@pytest.mark.parametrize("score, poor", [(0.49, True), (0.51, False)])
def test_below_half_of_the_baseline_a_method_did_not_learn(score: float, poor: bool) -> None:
    """However well it does with lag."""
    table = table_of(method("ppo_clip", {1: 1.0, 4: 0.8}, 1e-6), method("other", {1: score, 4: 2.0}, 1e-6))
    rows = [row for row in table.rows if row.method == "other"]
    assert {row.did_not_learn for row in rows} == {poor}
    assert (table.methods[0] == ("other", "reference")) == (not poor)
    assert (rank(table, rows[1]) is None) == (rows[1].holm is None) == poor
    words = verdict(table, "other", "reference")
    assert ("did not learn" in words) == poor
    assert ("above PPO-clip" in words) == (not poor), "no test, as none is corrected"


def test_without_runs_at_k_1_no_method_is_set_apart() -> None:
    runs = [*method("ppo_clip", {4: 0.8}), *method("other", {4: 0.3})]
    row = table_of(runs).row("other", 4)
    assert row is not None and not row.did_not_learn and row.holm is not None and row.holm < 1e-4


def test_a_control_has_the_runs_of_its_method_at_each_capacity() -> None:
    base, wide = method("ppo_clip", {1: 1.0, 4: 0.8}), method("wide", {4: 0.7})
    table = table_of(base, wide)
    rows = [table.row(name, k) for name, k in (("ppo_clip", 1), ("wide", 1), ("wide", 4))]
    scores = [None if row is None else row.scores for row in rows]
    assert scores[0] == scores[1] != scores[2]
    assert rows[1] is not None and rows[1].label == "a wide clip"


def test_a_partial_table_counts_what_is_missing() -> None:
    table = table_of(method("ppo_clip", {1: 1.0}))
    each = 2 * (2 * 2 + 5)  # environments x (rates x tuning seeds + seeds)
    assert table.runs_total == (3 * 2 - 1) * each
    assert table.runs_done == each  # the control's first row is the same runs, which count once
    assert "partial: 18 of 90 runs" in verdict(table, "ppo_clip", "reference")


def test_nothing_is_counted_twice() -> None:
    base = method("ppo_clip", {1: 1.0, 4: 0.8})
    table, twice = table_of(base), table_of(base, own=base)
    assert table == twice
    changed = [replace(base[0], record={**base[0].record, "id": "another"})]
    changed[0].__dict__["curves"] = base[0].curves
    with pytest.raises(UserError, match="its plugin was changed in between"):
        table_of(base, own=changed)


@pytest.mark.parametrize("seeds", [2, 5])
def test_a_look_stands_beside_the_published_row_at_its_rate(seeds: int) -> None:
    base = [
        run
        for k, best, score in ((1, 1.0, 1.0), (4, 0.5, 0.8))  # another rate at each capacity
        for run in method("ppo_clip", {k: score}, best=best)
    ]
    assert preview_rates(TOY, base) == {1: 1.0, 4: 0.5}
    assert preview_rates(TOY, [run for run in base if run.seed < 100]) == preview_rates(TOY, []) == {1: 1.0, 4: 1.0}
    look = [
        stored_run("mine", env, k, seed, [raw(env, 0.7 + 0.2 * (factor == best) + 0.01 * seed)] * 2, factor)
        for env in TOY.env
        for k, best in ((1, 1.0), (4, 0.5))
        for seed in range(seeds)
        for factor in (0.5, 1.0)  # of an earlier look at the other rate
    ]
    table = table_of(base, own=look, look=seeds)
    row = table.row("mine", 4)
    assert row is not None and (row.n, row.missing, row.source, row.rate) == (seeds, 0, "yours", 0.5)
    assert row.score == pytest.approx(0.9 + 0.01 * (seeds - 1) / 2)
    assert row.difference is not None and row.detectable is not None and row.loss_p is not None
    assert (row.low is None) == (row.retained_low is None) == (seeds == 2), "few runs have no interval"
    text = verdict(table, "mine", "yours")
    assert f"a preview, not a result: {seeds} seeds at the learning rates of PPO-clip, none tuned" in text
    assert "rank" not in text and rank(table, row) is None, "a preview has no rank"
    assert rank(table, table.rows[1]) == (1, 1)


def test_how_far_a_method_moved_on_control_is_at_the_ends_of_phases() -> None:
    runs = method("ppo_clip", {1: 1.0})
    for run in runs:
        run.record["summary"] = {"tv_end": 0.01 * (1 + run.seed), "ess_end": 0.7, "tv_data": 0.5}
    row = table_of(runs).row("ppo_clip", 1)
    assert row is not None and (row.tv, row.ess) == (pytest.approx(0.03), pytest.approx(0.7))
    for run in runs:
        run.record["summary"]["tv"] = 0.2
    row = table_of(runs).row("ppo_clip", 1)
    assert row is not None and row.tv == pytest.approx(0.2)


def test_a_look_has_two_seeds_or_all_and_a_row_a_ladder() -> None:
    flags = [(False, False), (True, False), (False, True)]
    assert [preview_seeds(TOY, quick, one_rate) for quick, one_rate in flags] == [0, 2, 5]
    assert count_runs(TOY) * len(TOY.capacity) == 4 * (5 + 2 * 2)


@pytest.mark.parametrize(("score", "side", "change"), [(1.2, "above", "gains"), (0.5, "below", "loses")])
def test_a_verdict_names_the_side_of_a_difference(score: float, side: str, change: str) -> None:
    table = table_of(method("ppo_clip", {1: 1.0, 4: 0.8}), method("other", {1: 1.0, 4: score}))
    lines = verdict(table, "other", "reference").splitlines()
    first, last = (table.row("other", k) for k in (1, 4))
    assert last is not None and last.difference == pytest.approx(score - 0.8, abs=0.03)
    assert f"K=4: {side} PPO-clip by {abs(last.difference):.2f} (p <.0001)" in lines
    assert last.retained == pytest.approx(score, abs=0.02)
    words = f"K=4: {change} {abs(last.retained - 1):.0%} of its score without lag (p <.0001); keeps"
    assert any(line.startswith(words) for line in lines)
    assert first is not None and first.holm is not None and first.detectable is not None
    p = f"{first.holm:.4f}".lstrip("0")
    line = f"K=1: no significant difference from PPO-clip (p {p}); with 80 % power 5 seeds detect a difference of "
    assert f"{line}{first.detectable:.2f}" in lines


def test_a_rank_is_among_methods_and_counts_equal_results_once() -> None:
    base, wide = method("ppo_clip", {1: 1.0, 4: 0.8}), method("wide", {4: 0.9})
    table = table_of(base, wide, method("other", {1: 0.9, 4: 0.7}))
    places = {(row.method, row.capacity): rank(table, row) for row in table.rows}
    assert places == {
        **{("ppo_clip", k): (1, 2) for k in (1, 4)},
        **{("other", k): (2, 2) for k in (1, 4)},
        **{("wide", k): None for k in (1, 4)},
    }
    copy = replace(table.rows[0], method="copy")
    assert rank(replace(table, rows=(*table.rows, copy)), table.rows[2]) == (2, 2)


def test_a_share_of_all_of_the_score_is_kept() -> None:
    runs = method("ppo_clip", {1: 1.0})
    runs += [
        stored_run(run.label.partition("[")[0], run.spec["env"], 4, run.seed, run.curves["sampled"][1], factor)
        for run in runs
        if (factor := run.spec["learning_rate"] / 0.01)
    ]
    assert "K=4: keeps 100% of its score without lag (p 1, not significant)" in verdict(
        table_of(runs), "ppo_clip", "reference"
    )


def test_a_divergence_at_one_k_leaves_the_ladder_at_another_to_wait() -> None:
    runs = method("mine", {1: 1.0, 4: 0.9})
    runs = [run for run in runs if not (run.seed == 100 and run.spec["learning_rate"] == 0.005)]
    gone = {("mine", 4): {ProtocolPlace(env, 4, 100, 0.5, True) for env in TOY.env}}
    table = table_of(method("ppo_clip", {1: 1.0, 4: 0.8}), own=runs, name="mine", divergences=gone)
    rows = [table.row("mine", k) for k in (1, 4)]
    assert [row and (row.rate, row.missing) for row in rows] == [(None, 12), (1.0, 0)]


def test_a_published_row_keeps_its_p_values_beside_a_preview() -> None:
    runs = [*method("ppo_clip", {1: 1.0, 4: 0.8}), *method("other", {1: 1.0, 4: 0.82})]
    looks = [run for run in method("mine", {1: 1.0, 4: 0.9}) if run.seed < 2]
    alone, beside = table_of(runs), table_of(runs, own=looks, look=2, name="mine")
    assert beside.rows[: len(alone.rows)] == alone.rows
    preview = beside.row("mine", 4)
    assert preview is not None and preview.holm is not None and preview.p is not None and preview.holm > preview.p


def test_complete_rows_of_the_folder_stand_in_for_published_ones() -> None:
    base = method("ppo_clip", {1: 1.0, 4: 0.8})
    sources = {"reference": [], "complete": base, "yours": method("mine", {1: 1.0, 4: 0.9})}
    table = benchmark_table(TOY, sources, name="mine")
    rows = [table.row(name, 4) for name in ("mine", "ppo_clip")]
    assert rows[0] is not None and rows[0].holm is not None and rows[1] is not None and rows[1].source == "yours"


def test_a_method_that_is_a_control_at_one_k_has_a_row_of_its_own() -> None:
    variant = "ppo_clip[clip=0.5]"
    reference = [*method("ppo_clip", {1: 1.0, 4: 0.8}), *method("wide", {4: 0.9})]
    shared = [run for run in reference if run.label.startswith("ppo_clip[clip")]
    mine = [*method(variant, {1: 0.9}), *shared]  # at K = 4 the published runs of the control
    table = table_of(reference, own=mine, name=variant)
    rows = [table.row(variant, k) for k in (1, 4)]
    assert [row and (row.n, row.missing, row.source) for row in rows] == [(5, 0, "yours")] * 2


def test_rows_with_the_same_results_are_one_computation() -> None:
    """`copy` is PPO-clip without lag and `third` under lag: no test of the former, and one in Holm's family."""
    places = {"ppo_clip": (1.0, 0.8), "copy": (1.0, 0.82), "third": (1.05, 0.82), "fourth": (1.03, 0.9)}
    noise = np.array([-0.03, -0.01, 0.01, 0.03])
    rows = with_tests(
        [
            BenchmarkRow(
                name, name, "toy", k, "reference", 4, 0, score=mean, scores={"A": dict(enumerate(mean + noise))}
            )
            for name, means in places.items()
            for k, mean in zip((1, 4), means, strict=True)
        ]
    )
    found = {(row.method, row.capacity): row for row in rows}
    first = found["copy", 1]
    assert first.equals_baseline and (first.difference, first.p, first.holm) == (None, None, None)
    assert [row for row in rows if row.equals_baseline] == [first]
    ps = {name: found[name, 4].p or 0.0 for name in ("copy", "third", "fourth")}
    assert ps["copy"] == ps["third"] > ps["fourth"]
    assert [found[name, 4].holm for name in ps] == pytest.approx([ps["copy"], ps["copy"], 2 * ps["fourth"]])


def test_a_control_may_be_the_baseline_without_lag() -> None:
    table = table_of(method("ppo_clip", {1: 1.0, 4: 0.8}), method("wide", {1: 1.0, 4: 0.9}))
    assert "K=1: the same results as PPO-clip" in verdict(table, "wide", "reference").splitlines()


def test_the_difference_that_would_be_seen_passes_holms_correction() -> None:
    """At K = 4, `far` is significant, so that the other two are tested at half of the level."""
    means = {"ppo_clip": 0.8, "other": 0.81, "close": 0.79, "far": 0.4}
    base, other, close, far_runs = (method(name, {1: 1.0, 4: mean}) for name, mean in means.items())
    table = table_of(base, other, own=[*close, *far_runs])
    row, baseline, far = (table.row(name, 4) for name in ("other", "ppo_clip", "far"))
    assert row is not None and baseline is not None and far is not None and far.holm is not None and far.holm < 0.05
    variances = [c.var(ddof=1) / 5 / 2**2 for c in (*row.columns, *baseline.columns)]
    freedom = sum(variances) ** 2 / sum(v**2 / 4 for v in variances)
    effect = (row.detectable or 0.0) / np.sqrt(sum(variances))
    border = stats.t.ppf(1 - 0.05 / 2 / 2, freedom)
    assert 1 - stats.nct.cdf(border, freedom, effect) == pytest.approx(0.8, abs=1e-4)


def test_the_data_of_a_table_are_plain() -> None:
    content = table_of(method("ppo_clip", {1: 1.0, 4: 0.8}), method("other", {1: 0.9})).to_json()
    assert json.loads(json.dumps(content))["rows"][0]["method"] == "ppo_clip"


@pytest.mark.parametrize("track", ["control", "paper", "tokens"])
def test_the_window_of_the_control_is_that_of_the_mean_lag(track: str) -> None:
    protocol = read_protocol(track)
    window = next(control for control in protocol.controls if control.name == "ppo_clip_window")
    for k in protocol.capacity[1:]:
        d = k - 1 if protocol.lag == "oldest" else (k - 1) / 2
        assert window.methods[str(k)] == f"ppo_clip[clip={round(1 - 0.8**d, 3):g},clip_high={round(1.2**d - 1, 3):g}]"
    assert window.methods["1"] == "ppo_clip"
    assert protocol.settings["fill_phases"] >= max(protocol.capacity) - 1
    assert not {*protocol.seeds} & {*protocol.tuning_seeds}


def test_an_unknown_track_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"TRACK='token' is unknown; did you mean 'tokens'"):
        read_protocol("token")


TRACKS = {"tokens": 1.0, "control": 3.0}  # rate that PPO-clip chose at every K


def published_areas(track: str) -> dict[int, list[np.ndarray]]:
    """Areas of all published runs of PPO-clip at the rate that it chose, by K and task, on the track's scale."""
    runs = pd.read_parquet(ROOT / f"results/reference/stalebench_v1_{track}/runs.parquet")
    protocol = read_protocol(track)
    own = runs[(runs.method == "ppo_clip") & np.isclose(runs.learning_rate, protocol.rate(TRACKS[track]))]
    own = own[~own.label.str.contains("clip=")]  # the width control
    assert set(own.protocol) == {protocol.digest} and len(own) == len(protocol.env) * 3 * 11
    scale = {env: (low, protocol.reference[env] - low) for env, low in protocol.random.items()}
    return {
        k: [((own[(k == own.K) & (own.env == env)].area - low) / span).to_numpy() for env, (low, span) in scale.items()]
        for k in protocol.capacity
    }


def rejection_share(a: list[np.ndarray], b: list[np.ndarray], rows: int, times: int) -> float:
    """Share of resamplings in which eight runs a task of `b` differ from eight of `a`, at 5 % over so many rows."""
    rng = np.random.default_rng(43)
    draws = ([[rng.choice(task, 8) for task in tasks] for tasks in (a, b)] for _ in range(times))
    return float(np.mean([welch(*pair).p * rows < 0.05 for pair in draws]))


@pytest.mark.parametrize("track", TRACKS)
@pytest.mark.parametrize("k", [1, 4, 16])
def test_the_baseline_under_another_name_hardly_ever_differs(track: str, k: int) -> None:
    areas = published_areas(track)[k]
    assert rejection_share(areas, areas, 1, 2000) < 0.065
    assert rejection_share(areas, areas, 8, 100) <= 0.05


@pytest.mark.parametrize("track", TRACKS)
@pytest.mark.parametrize("k", [4, 16])
def test_the_baseline_on_fresh_data_differs_from_it_among_eight_rows(track: str, k: int) -> None:
    areas = published_areas(track)
    assert rejection_share(areas[1], areas[k], 8, 100) >= 0.9


@pytest.mark.parametrize("track", TRACKS)
def test_the_reference_is_the_mean_of_the_reported_runs_without_lag(track: str) -> None:
    protocol, areas = read_protocol(track), published_areas(track)[1]
    runs = pd.read_parquet(ROOT / f"results/reference/stalebench_v1_{track}/runs.parquet")
    own = runs[(runs.method == "ppo_clip") & (runs.K == 1) & (runs.seed < 8) & ~runs.label.str.contains("clip=")]
    own = own[np.isclose(own.learning_rate, protocol.rate(TRACKS[track]))]
    assert len(areas) == len(protocol.env) and len(own) == 8 * len(protocol.env)
    for env, mean in own.groupby("env").area.mean().items():
        assert protocol.reference[str(env)] == pytest.approx(mean, rel=2e-4)


def test_a_run_has_the_digest_of_the_protocol_that_it_follows() -> None:
    tokens = read_protocol("tokens")
    spec = {**tokens.settings, "env": "word-problems", "capacity": 4, "seed": 3, "lag": tokens.lag}
    run = StoredRun(Path("x"), {"id": "x", "label": "spo", "spec": spec}, "")
    assert digest_of(run) == tokens.digest
    assert benchmark_command([run, run]) == "staleharness benchmark --track=tokens --algo='spo'"
    window = replace(run, record={**run.record, "label": "ppo_clip[clip=0.488,clip_high=0.728,learning_rate=0.0001]"})
    assert benchmark_command([window]).endswith("--algo='ppo_clip_window'")
    for other in ({"fill_phases": 0}, {"capacity": 5}, {"learning_rate": 1e-2}):
        stranger = replace(run, record={**run.record, "spec": spec | other})
        assert digest_of(stranger) == "" and benchmark_command([run, stranger]) == ""


def test_a_difference_between_kinds_of_cpu_is_marked() -> None:
    other = method("other", {1: 1.1, 4: 0.9})
    runs = [*method("ppo_clip", {1: 1.0, 4: 0.6}), *other]
    for run in runs:
        run.record["fingerprint"] = {"cpu": "Xeon"}
    words = "these runs and those of PPO-clip are of different kinds of CPU"
    assert not any(row.between_cpus for row in table_of(runs).rows) and words not in remarks(
        table_of(runs), "other", "reference"
    )
    for run in other:
        run.record["fingerprint"] = {"cpu": "EPYC"}
    table = table_of(runs)
    assert {row.method: row.between_cpus for row in table.rows if row.capacity == 4} == {
        "ppo_clip": False,
        "other": True,
        "wide": False,
    }
    assert words in remarks(table, "other", "reference") and words in verdict(table, "other", "reference")


def test_a_row_has_the_hashes_of_its_code() -> None:
    runs = [*method("ppo_clip", {1: 1.0, 4: 0.6}), *method("other", {1: 1.1, 4: 0.9})]
    for run in runs:
        run.record["method"] = {"code": f"code of {run.label.partition('[')[0]}"}
    rows = {row.method: row.code for row in table_of(runs).rows}
    assert rows["other"] == ("code of other",) and rows["ppo_clip"] == ("code of ppo_clip",)
