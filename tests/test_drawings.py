"""What the drawing functions of papers' figures show: each number against hand-worked cases or another library."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from results_helper import write_grid, write_run

from staleharness import ablations, comparisons, retention, scores, stacked, stats, training
from staleharness.errors import UserError
from staleharness.scores import grid
from staleharness.tables import Table


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    for room in (comparisons, retention, training):
        monkeypatch.setattr(room, "REPS", 200)


def quick(runs: list) -> Table:
    return stats.table(runs, reps=50, engine="quick")


def lines(ax) -> dict[str, np.ndarray]:
    return {line.get_gid(): np.asarray(line.get_ydata()) for line in ax.lines if line.get_gid()}


# --- comparisons


def test_a_profile_is_rliables() -> None:
    from rliable import library

    matrix = np.random.default_rng(0).random((5, 3))
    taus = np.linspace(0, 1, 11)
    theirs = library.create_performance_profile({"x": matrix}, taus, reps=10)[0]["x"]
    np.testing.assert_allclose(comparisons.profile(list(matrix.T), taus), theirs)


def test_a_profile_weighs_tasks_equally_however_many_runs_they_have() -> None:
    tasks = [np.array([1.0]), np.array([0.0, 0.0, 0.0])]
    assert comparisons.profile(tasks, np.array([0.5])).tolist() == [0.5]


def test_differences_pair_runs_of_one_seed(tmp_path: Path) -> None:
    for seed, (ours, theirs) in enumerate([(30.0, 10.0), (60.0, 20.0), (110.0, None)]):
        write_run(tmp_path, "vaco", seed, sampled=ours, capacity=1)
        if theirs is not None:
            write_run(tmp_path, "ppo_clip", seed, sampled=theirs, capacity=1)
    runs = read(tmp_path)
    (pairs,) = comparisons.pairs(grid(runs), quick(runs), "vaco", "ppo_clip", 1)
    np.testing.assert_allclose(pairs, [0.2, 0.4])  # of the range 10 to 110; seed 2 has no partner
    figure = comparisons.paired_differences(runs, quick(runs))
    assert any(np.allclose(line.get_xdata(), [0.3, 0.3]) for line in figure.axes[0].lines)


def read(root: Path) -> list:
    from staleharness.store import Store

    return Store(root).read_all()


def test_a_baseline_without_runs_is_named(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("spo", "vaco"), seeds=2, phases=3)
    with pytest.raises(UserError, match="baseline='ppo_clip' has no run"):
        comparisons.paired_differences(runs, quick(runs))


# --- training


def test_a_run_counts_from_the_first_evaluation_at_the_threshold(tmp_path: Path) -> None:
    curves = [[0.0, 60.0, 40.0, 100.0], [0.0, 20.0, 50.0, 60.0], [0.0, 10.0, 20.0, 30.0]]
    runs = [write_run(tmp_path, "vaco", s, sampled=c[-1], curve=c, phases=4) for s, c in enumerate(curves)]
    table = quick(runs)  # worst 30, best 100: half-way is 65
    figure = training.steps_to_threshold(runs, table)
    (line,) = [line for line in figure.axes[0].lines if line.get_gid()]
    assert line.get_xdata().tolist() == [0, 4 * 2048, 4 * 2048]
    np.testing.assert_allclose(line.get_ydata(), [0, 1 / 3, 1 / 3])


def test_the_end_of_a_metric_is_the_mean_of_its_last_phases_run_by_run(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("vaco",), seeds=2, phases=20)
    row = training._end_row(grid(runs), "vaco", 8, "tv_end", 0.1)
    expected = np.mean([r.metrics()["tv_end"].iloc[-2:].mean() for r in runs])
    assert row["end"] == pytest.approx(expected) and row["end_low"] <= row["end"] <= row["end_high"]


def test_who_does_not_measure_a_metric_is_not_in_its_figure(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("spo", "vaco"), seeds=2, phases=4)
    for run in runs[:2]:
        run.metrics().drop(columns="tv_end").to_parquet(run.path / "metrics.parquet")
    figure = training.metric_over_training(runs, quick(runs), metric="tv_end", name="TV", line=0.1)
    (box,) = figure.legends
    assert [t.get_text() for t in box.get_texts()] == ["vaco"]


def test_the_area_beside_the_curves_is_the_tables(tmp_path: Path) -> None:
    runs = write_grid(tmp_path, ("spo", "vaco"), capacities=(1, 4), seeds=2, phases=6)
    table = quick(runs)
    drawn = {
        float(y) for line in training.score_and_area(runs, table).axes[-1].lines for y in line.get_ydata()
    }
    assert {r["auc"] for r in table.rows} <= drawn


# --- columns under each other


def test_stacked_columns_are_means_over_runs_and_who_does_not_measure_one_is_not_in_its_panel(
    tmp_path: Path,
) -> None:
    for seed in (0, 1):
        both = {"reward": [0.1 * seed, 0.4], "ratio": [0.5, 0.7 + 0.2 * seed]}
        write_run(tmp_path, "vcpo", seed, phases=2, columns=both)
        write_run(tmp_path, "tis", seed, phases=2, columns={"reward": [0.2, 0.3]})
    runs = read(tmp_path)
    figure = stacked.metrics_stacked(
        runs, quick(runs), metrics=["reward", "ratio"], names=["reward", "left"], line=1.0
    )
    reward, ratio = ([tuple(line.get_ydata()) for line in ax.lines if line.get_gid()] for ax in figure.axes)
    assert [ax.get_title("left") for ax in figure.axes] == ["reward, K = 8", "left, K = 8"]
    np.testing.assert_allclose(reward, [(0.2, 0.3), (0.05, 0.4)])  # tis, vcpo
    assert ratio[0] == () and ratio[1] == pytest.approx((0.5, 0.8))
    assert [line.get_ydata() for line in figure.axes[1].lines if not line.get_gid()] == [[1.0, 1.0]]
    with pytest.raises(UserError, match="2 metrics have 1 names"):
        stacked.metrics_stacked(runs, quick(runs), metrics=["reward", "ratio"], names=["reward"])


def test_a_metric_falls_when_its_mean_is_first_well_below_its_best_so_far(
    tmp_path: Path,
) -> None:
    columns = {"ess": [1.0, 0.4, 0.2, 0.0, 0.9, 0.9], "reward": [0.2, 0.6, 0.6, 0.55, 0.45, 0.0]}
    run = write_run(tmp_path, "tis", 0, phases=6, columns=columns)
    # means of two: 0.7 0.3 0.1 0.45 0.9, and 0.4 0.6 0.575 0.5 0.225
    steps = [2048 * phase for phase in range(1, 7)]
    assert stacked.falls(run, "ess", 0.5, 0, 2) == (steps[2], steps[5])
    assert stacked.falls(run, "ess", 0.4, 0, 2) == (steps[3], steps[5])
    assert stacked.falls(run, "ess", 0.9, 0, 2) == (steps[2], steps[4])
    assert stacked.falls(run, "ess", 0.5, steps[0], 2) == (
        steps[3],
        steps[5],
    )  # the first phase is not its best
    assert np.isnan(stacked.falls(run, "ess", 0.5, steps[2], 2)[0])
    assert np.isnan(stacked.falls(run, "ess", 0.1, 0, 2)).all()
    assert np.isnan(stacked.falls(run, "nothing", 0.5, 0, 2)).all()
    assert np.isnan(stacked.falls(run, "ess", 1.0, 0, 7)).all()
    figure = stacked.warning_before_fall([run], quick([run]), metric="ess", name="ESS", share=0.9, window=2)
    assert [list(line.get_xdata()) for line in figure.axes[2].lines] == [
        [steps[2], steps[4]], [steps[2]], [steps[4]]
    ]  # fmt: skip


# --- ablations


def test_an_options_value_is_what_the_run_had_not_what_its_label_says(tmp_path: Path) -> None:
    a = write_run(tmp_path, "vaco", 0, settings={"hyper": {"delta": 0.2}})
    b = write_run(tmp_path, "vaco[delta=0.4]", 0, settings={"hyper": {"delta": 0.4}})
    c = write_run(tmp_path, "spo", 0, settings={"learning_rate": 0.1})
    assert ablations.option_values([a, b, c], "delta") == {"vaco": 0.2, "vaco[delta=0.4]": 0.4}
    assert ablations.option_values([a, b, c], "learning_rate") == {"spo": 0.1}
    with pytest.raises(UserError, match="option='rho': no run here has it"):
        ablations.option_values([a], "rho")


def test_a_line_over_an_option_goes_through_the_tables_iqm_in_order_of_value(tmp_path: Path) -> None:
    levels = {0.05: 10.0, 0.2: 50.0, 0.8: 30.0}
    for delta, level in levels.items():
        for seed in (0, 1):
            label = "vaco" if delta == 0.2 else f"vaco[delta={delta}]"
            write_run(tmp_path, label, seed, sampled=level + seed, settings={"hyper": {"delta": delta}})
    runs = read(tmp_path)
    ax = ablations.score_against_option(runs, quick(runs), option="delta", name="δ").axes[0]
    *_, line = ax.lines
    np.testing.assert_allclose(line.get_xdata(), [0, 1, 2])
    np.testing.assert_allclose(line.get_ydata(), [(v + 0.5 - 10) / 41 for v in levels.values()])
    assert [t.get_text() for t in ax.get_xticklabels()] == ["0.05", "0.2", "0.8"] and ax.get_xlabel() == "δ"


def test_a_phase_diagram_frames_the_best_value_at_each_capacity(tmp_path: Path) -> None:
    for k, best in ((1, 0.1), (4, 0.01)):
        for rate in (0.01, 0.1):
            for seed in (0, 1):
                level = 100.0 * (rate == best) + seed
                settings = {"learning_rate": rate, "hyper": {}}
                write_run(
                    tmp_path, f"spo[learning_rate={rate}]", seed, capacity=k, sampled=level, settings=settings
                )
    runs = read(tmp_path)
    ax = ablations.phase_diagram(runs, quick(runs), option="learning_rate").axes[0]
    frames = sorted(
        (float(np.mean(line.get_xdata()[:2])), float(np.mean(line.get_ydata()[1:3]))) for line in ax.lines
    )
    assert frames == [(0.0, 1.0), (1.0, 0.0)]
    bold = {t.get_position() for t in ax.texts if t.get_fontweight() == "bold"}
    assert bold == {(0, 1), (1, 0)}


# --- the risk table


def test_the_share_kept_is_measured_from_a_random_policy() -> None:
    assert retention.random_returns(["Hopper-v5", "Nowhere-v0"], "sampled") == {"Hopper-v5": 15.23}


def test_the_share_kept_is_a_mean_over_environments(tmp_path: Path) -> None:
    zero = retention.random_returns(["Hopper-v5", "Walker2d-v5"], "sampled")
    for env, shares in (("Hopper-v5", (0.5, 0.7)), ("Walker2d-v5", (0.1, 0.3))):
        for seed, share in enumerate(shares):
            write_run(tmp_path, "vaco", seed, env=env, capacity=1, sampled=zero[env] + 100, phases=3)
            write_run(tmp_path, "vaco", seed, env=env, capacity=4, sampled=zero[env] + 100 * share, phases=3)
    found = grid(read(tmp_path))
    kept = retention.retained(found, "vaco", 4, "sampled")
    assert kept is not None and kept.share == pytest.approx(0.4)
    assert kept.low == pytest.approx(0.3) and kept.high == pytest.approx(0.5)
    assert retention.retained(found, "vaco", 1, "sampled") == retention.Kept(pytest.approx(1.0), None, None)
    assert retention.retained(found, "vaco", 16, "sampled") is None


def test_who_did_not_learn_has_nothing_to_keep(tmp_path: Path) -> None:
    for label, gain in (("vaco", 1000.0), ("spo", 50.0)):
        for k in (1, 4):
            write_run(tmp_path, label, 0, env="Hopper-v5", capacity=k, sampled=15.23 + gain, phases=3)
    runs = read(tmp_path)
    assert retention.retained(grid(runs), "spo", 4, "sampled") is None
    said = [t.get_text() for t in retention.risk_table(runs, quick(runs)).axes[0].texts]
    assert sorted(said) == sorted(["–", "–", "100%", "100%", *["not measured"] * 4])


def test_the_bands_of_the_lesson_hold_each_capacity_once() -> None:
    ks = [1, 2, 4, 5, 6, 16, 20, 21, 64]
    assert sorted(k for band in retention.bands_of(ks).values() for k in band) == ks
    assert [retention.band_name(band) for band in retention.BANDS] == ["0–1", "2–5", "6–20", "20+"]
    assert retention.bands_of([1])[21, math.inf] == []


# --- scores as they are


def test_normalise_raw_leaves_scores_alone(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, "vaco", seed, sampled=0.25 * (seed + 1)) for seed in (0, 1)]
    (row,) = stats.table(runs, normalise="raw", reps=50, engine="quick").rows
    assert row["iqm"] == pytest.approx(0.375) and row["optimality_gap"] == pytest.approx(0.625)
    scale = scores.normaliser("raw", grid(runs), "sampled")
    assert scale.note == "the scores as they are" and not scale.degenerate
