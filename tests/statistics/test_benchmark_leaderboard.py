"""Track of a leaderboard from a protocol's table: its numbers, its runs, and what is missing."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from test_benchmark_table import TOY, method, raw, stored_run

from staleharness.figures.leaderboard_tracks import track_looks
from staleharness.statistics.benchmark.benchmark_table import BenchmarkTable, benchmark_table, rank, verdict
from staleharness.statistics.benchmark.leaderboard_rows import leaderboard_track
from staleharness.statistics.benchmark.protocol import ProtocolPlace, read_protocol
from staleharness.statistics.leaderboard_scores import Track
from staleharness.statistics.method_labels import display_label
from staleharness.store.stored_run import StoredRun

RUNS = [*method("ppo_clip", {1: 1.0, 4: 0.6}), *method("other", {1: 1.1, 4: 0.9})]


def table_and_track(runs: list[StoredRun]) -> tuple[BenchmarkTable, Track]:
    table = benchmark_table(TOY, {"reference": runs})
    return table, leaderboard_track(TOY, table, {"reference": runs})


def test_a_track_has_the_numbers_of_the_table_and_the_mean_over_k() -> None:
    table, track = table_and_track(RUNS)
    assert [row.label for row in track.ranking] == ["other", "ppo_clip"]
    other = track.ranking[0]
    for k in (1, 4):
        row = table.row("other", k)
        result = other.capacities[k]
        assert (result.score.value, result.score.low, result.p) == (row.score, row.low, row.holm)
        assert result.difference.value == row.difference and result.learning_rate == 0.01
        assert result.runs == row.scores
    assert other.score.value == pytest.approx(np.mean([table.row("other", k).score for k in (1, 4)]))
    assert other.score.low < other.score.value < other.score.high
    assert other.retention.value == table.row("other", 4).retained
    assert track.protocol == TOY.digest and track.replication == pytest.approx(1.0, abs=0.2)
    assert track.ranking[1].capacities[4].difference is None  # of the baseline from itself


def test_runs_of_a_row_are_the_reported_ones_by_id() -> None:
    _, track = table_and_track(RUNS)
    ids = {run.id for run in RUNS if run.seed in TOY.seeds}
    found = {run for row in track.ranking for r in row.capacities.values() for runs in r.runs.values() for run in runs}
    assert found == ids
    assert track.ranking[0].capacities[1].n == 10 == track.ranking[0].capacities[1].expected


def test_the_curve_is_the_mean_on_the_scale_of_the_protocol() -> None:
    runs = [run for run in RUNS if run.label.startswith("ppo_clip")]
    seeds = {factor: (*TOY.tuning_seeds, *(TOY.seeds if factor == 1.0 else ())) for factor in TOY.rates}
    rest = [
        stored_run("other", env, k, seed, [raw(env, x) for x in (0.0, 0.5, 1.0)], factor)
        for env, k, factor in itertools.product(TOY.env, TOY.capacity, TOY.rates)
        for seed in seeds[factor]
    ]
    _, track = table_and_track([*runs, *rest])
    other = next(row for row in track.rows if row.label == "other")
    assert other.capacities[4].curve == ((0.0, 0.0), (0.1, 0.5), (0.2, 1.0))  # steps 0, 1, 2 of 10


def test_what_is_missing_has_no_score_and_is_counted() -> None:
    _, track = table_and_track(
        [run for run in RUNS if not (run.label.startswith("other") and run.spec["capacity"] == 4)]
    )
    row = next(row for row in track.rows if row.label == "other")
    assert row.score is None and row.capacities[4].score is None and row.capacities[1].n == 10
    assert row in track.rows_without_rank and "of" in track.about
    control = next(row for row in track.rows if row.kind == "control")
    assert control.label == "a wide clip" and control.name == "wide" and control.capacities[1].n == 10
    assert track_looks([track])["wide"].name == "a wide clip"


def test_the_titles_of_width_controls_are_shown_as_they_are() -> None:
    titles = [control.title for track in ("control", "tokens", "paper") for control in read_protocol(track).controls]
    titles.append("PPO-clip, window [.8^d, 1.2^d]")
    assert len(titles) == 7 and [display_label(title) for title in titles] == titles


def test_no_run_at_all_is_a_track_without_ranking() -> None:
    _, track = table_and_track([])
    assert track.ranking == [] and track.rows == () and track.runs == (0, 0) and track.replication is None


def test_a_method_that_did_not_learn_is_apart_with_the_rate_it_chose() -> None:
    _, track = table_and_track(
        [*method("ppo_clip", {1: 1.0, 4: 0.8}, 0.01), *method("other", {1: 0.3, 4: 0.2}, best=0.5)]
    )
    (other,) = (row for row in track.rows_without_rank if row.label == "other")
    assert not other.has_learned and other.capacities[4].learning_rate == 0.005


def test_a_bundle_of_the_same_method_has_its_own_runs_beside_ours() -> None:
    theirs = method("other", {1: 1.0, 4: 0.7})
    for run in theirs:
        run.record["id"] = f"theirs {run.id}"
    sources = {"reference": RUNS, "theirs": theirs}
    track = leaderboard_track(TOY, benchmark_table(TOY, sources), sources)
    ours, added = (next(r for r in track.rows if r.method == name) for name in ("other", "other (theirs)"))
    assert (ours.kind, added.kind) == ("method", "added")
    runs = added.capacities[4].runs["A"]
    assert len(runs) == 5 and all(run.startswith("theirs") for run in runs)
    assert not any(run.startswith("theirs") for run in ours.capacities[4].runs["A"])


def test_a_look_asks_for_its_own_seeds_alone() -> None:
    look = [run for run in method("mine", {1: 1.0, 4: 0.9}) if run.seed < 2]
    sources = {"reference": RUNS, "yours": look}
    track = leaderboard_track(TOY, benchmark_table(TOY, sources, look=2), sources)
    expected = {row.label: row.capacities[4].expected for row in track.rows}
    assert (expected["mine (yours)"], expected["other"]) == (2 * 2, 2 * 5)


def test_a_look_at_a_published_method_stands_beside_its_row() -> None:
    """Runs of both at one rate, with changed code, have one place."""
    look = [run for run in method("other", {1: 1.1, 4: 0.3}) if run.seed < 2]
    for run in look:
        run.record["id"] += " changed"
    sources = {"reference": RUNS, "yours": look}
    track = leaderboard_track(TOY, benchmark_table(TOY, sources, look=2), sources)
    scores = {row.label: row.capacities[4].score for row in track.ranking}
    assert set(scores) == {"ppo_clip", "other", "other (yours)"} < set(track_looks([track]))
    preview = next(row for row in track.rows if row.label == "other (yours)")
    assert preview.kind == "preview" and preview.capacities[4].difference.value == pytest.approx(-0.3, abs=0.03)
    _, without = table_and_track(RUNS)
    for shared in ("methods", "replication"):
        assert getattr(track, shared) == getattr(without, shared), "a preview changes nothing of published rows"
    assert track.pair_tests(4) == without.pair_tests(4)


def test_a_preview_of_a_control_is_one_row_beside_it() -> None:
    looks = [run for run in method("wide", {1: 1.0, 4: 0.9}) if run.seed < 2]
    looks = [replace(run, record={**run.record, "id": f"new {run.id}"}) for run in looks]
    for new, run in zip(looks, [run for run in method("wide", {1: 1.0, 4: 0.9}) if run.seed < 2], strict=True):
        new.__dict__["curves"] = run.curves
    sources = {"reference": [*RUNS, *(r for r in method("wide", {4: 0.7}))], "yours": looks}
    table = benchmark_table(TOY, sources, look=2, name="wide")
    track = leaderboard_track(TOY, table, sources)
    kinds = {row.label: row.kind for row in track.rows}
    assert kinds == {
        "ppo_clip": "method",
        "other": "method",
        "a wide clip": "control",
        "a wide clip (yours)": "preview",
    }
    assert "a preview, not a result" in verdict(table, "wide", "yours")
    assert table.row("wide", 4, "yours").n == 2 and table.row("wide", 4, "reference").n == 5


def test_the_page_tells_published_runs_from_yours() -> None:
    sources = {"reference": method("ppo_clip", {1: 1.0, 4: 0.6}), "yours": method("other", {1: 1.1, 4: 0.9})}
    track = leaderboard_track(TOY, benchmark_table(TOY, sources), sources)
    assert "are published or yours." in track.about
    assert "are published." in table_and_track(RUNS)[1].about


def test_the_page_says_how_often_the_largest_rate_is_best() -> None:
    text = "In 4 of 4 rows (a method at one K) the best learning rate is the largest tried"
    assert text in table_and_track(RUNS)[1].about and max(TOY.rates) == 1.0
    smaller = replace(TOY, rates=(1.0, 2.0))  # no run has the larger rate, so none is chosen
    track = leaderboard_track(smaller, benchmark_table(smaller, {"reference": RUNS}), {"reference": RUNS})
    assert "largest tried" not in track.about


@pytest.mark.parametrize(("tuning", "seeds"), [(False, (0, 1)), (True, (100,))])
def test_a_row_with_a_divergence_says_so(tuning: bool, seeds: tuple[int, ...]) -> None:
    """Two reported seeds: no score; a tuning run: its rate is left out, at this K alone."""
    factor = 0.5 if tuning else 1.0
    places = {ProtocolPlace("A", 4, seed, factor, tuning) for seed in seeds}
    mine = method("mine", {1: 1.0, 4: 0.9})
    mine = [run for run in mine if TOY.place_of(run) not in places]
    sources = {"reference": RUNS, "yours": mine}
    table = benchmark_table(TOY, sources, name="mine", divergences={("mine", 4): places})
    row, track = table.row("mine", 4), leaderboard_track(TOY, table, sources)
    (shared,) = (r for r in track.rows if r.label == "mine")
    text = verdict(table, "mine", "yours")
    assert row is not None and row.missing == 0 and "partial: 1" not in text
    assert (row.divergences, row.gaps) == ((0, (0.5,)) if tuning else (2, ()))
    assert (row.score is None) == (row.p is None) == (row.retained is None) == (rank(table, row) is None) != tuning
    assert (shared in track.methods) == tuning and shared.kind == ("method" if tuning else "diverged")
    words = "diverged at learning rate x0.5, which" if tuning else "diverged on 2 of 5 seeds: no score and no rank"
    assert f"K=4: {words}" in text
    assert rank(table, table.row("mine", 1)) is not None


def test_a_row_that_diverged_at_every_rate_lacks_no_run() -> None:
    places = {ProtocolPlace("A", 4, 100, factor, True) for factor in TOY.rates}
    sources = {"reference": RUNS, "yours": method("mine", {1: 1.0})}
    table = benchmark_table(TOY, sources, name="mine", divergences={("mine", 4): places})
    assert "K=4: diverged at every learning rate: no score" in verdict(table, "mine", "yours")
    assert table.row("mine", 4).missing == 0


def test_a_row_that_lacks_a_reported_run_has_no_rank() -> None:
    mine = [run for run in method("mine", {1: 1.0, 4: 0.9}) if (run.seed, run.spec["capacity"]) != (3, 4)]
    sources = {"reference": RUNS, "yours": mine}
    table = benchmark_table(TOY, sources, name="mine")
    track = leaderboard_track(TOY, table, sources)
    assert rank(table, table.row("mine", 4)) is None and "partial: 2 runs" in verdict(table, "mine", "yours")
    assert "mine" not in [row.label for row in track.methods]
    assert [row.kind for row in track.rows if row.label == "mine"] == ["partial"]


def test_a_variant_of_a_published_method_is_a_row_of_its_own() -> None:
    own = method("other[delta=0.1]", {1: 1.0, 4: 0.5})
    table = benchmark_table(TOY, {"reference": RUNS, "yours": own})
    track = leaderboard_track(TOY, table, {"reference": RUNS, "yours": own})
    names = [row.name for row in track.ranking]
    assert sorted(names) == ["other", "other[delta=0.1]", "ppo_clip"]
    assert len({track_looks([track])[name].name for name in names}) == 3


def test_seeds_are_drawn_together_for_all_capacities() -> None:
    """The mean of two capacities with the same scores is as uncertain as one of them."""
    runs = [run for run in method("ppo_clip", {1: 1.0}, 0.2) if run.seed in TOY.seeds or run.seed in TOY.tuning_seeds]
    values = {(run.spec["env"], run.seed, run.label): run.curves["sampled"][1] for run in runs}
    for run in method("ppo_clip", {4: 1.0}, 0.2):
        run.__dict__["curves"] = {"sampled": (np.arange(3.0), values[run.spec["env"], run.seed, run.label])}
        runs.append(run)
    table, track = table_and_track(runs)
    row, score = table.row("ppo_clip", 4), track.ranking[0].score
    assert row.score == pytest.approx(table.row("ppo_clip", 1).score) == pytest.approx(score.value)
    assert score.high - score.low == pytest.approx(row.high - row.low, rel=0.1)


def test_a_look_has_published_runs_where_the_rates_are_the_same() -> None:
    """At K = 4 the method has another rate than PPO-clip, so that its runs at that of PPO-clip are new."""
    own = [*method("other", {1: 1.1}), *method("other", {4: 0.9}, best=0.5)]
    new = [run for run in method("other", {4: 0.7}) if run.seed < 2]
    look = [*new, *(run for run in own if run.seed < 2 and run.spec["capacity"] == 1)]
    table = benchmark_table(TOY, {"reference": [*RUNS[: len(RUNS) // 2], *own], "yours": look}, look=2)
    rows = [row for row in table.rows if row.source == "yours"]
    assert [(row.capacity, row.n, row.missing) for row in rows] == [(1, 2, 0), (4, 2, 0)]
    assert rows[1].retained == pytest.approx(0.7 / 1.1, abs=0.05)
    same = {"reference": RUNS, "yours": [run for run in RUNS if run.label == "other" and run.seed < 2]}
    assert not any(row.source == "yours" for row in benchmark_table(TOY, same, look=2).rows)


def test_a_track_takes_cpus_and_code_from_the_table() -> None:
    other = method("other", {1: 1.1, 4: 0.9})
    for run in other:
        run.record.update(fingerprint={"cpu": "EPYC"}, method={"code": "0123"})
    _, track = table_and_track([*method("ppo_clip", {1: 1.0, 4: 0.6}), *other])
    rows = {row.label: row for row in track.rows}
    assert rows["other"].code == ("0123",) and rows["ppo_clip"].code == ()
    assert rows["other"].capacities[4].between_cpus and not rows["ppo_clip"].capacities[4].between_cpus


def test_an_order_is_that_of_methods_without_controls() -> None:
    controls = method("wide", {1: 2.0, 4: 2.0}, spread=0.3)
    _, with_control = table_and_track([*RUNS, *controls])
    _, without = table_and_track(RUNS)
    assert len(with_control.ranking) == len(without.ranking) + 1
    assert with_control.replication == without.replication
