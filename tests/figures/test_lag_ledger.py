"""The ledger, the lag that was trained on, and the level of the untrained policy, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex
from results_helper import write_run

from staleharness.figures.lag_tables import backward_lag, forward_steps
from staleharness.figures.lags_and_ledger import FATES
from staleharness.figures.plot_layout import FAINT
from staleharness.figures.registry import draw, sections, sheet
from staleharness.statistics.results import Results

ENTRIES = {"generated": 200, "trained": 120, "dropped": 50, "masked": 0, "queued": 30, "reused": 5}
LAGS = {"assigned": {"0": 4}, "realised": {"0": 100, "1": 100}, "trained": {"0": 90, "1": 30}}
SAID: dict[str, Any] = {
    "ledger": {"decisions": ENTRIES, "sequences": {key: n // 10 for key, n in ENTRIES.items()}},
    "lags": LAGS,
}


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results.of([write_run(tmp_path, seed=seed, capacity=k, said=SAID) for seed in (0, 1) for k in (2, 4)])


def names(results: Results) -> list[str]:
    return [drawing.name for drawing in sections(results)]


@pytest.mark.parametrize("width", [7.0, 3.5])
def test_a_bar_of_the_ledger_is_as_long_as_what_was_generated(results: Results, width: float) -> None:
    (ax,) = draw("ledger", results, width=width).axes
    colours = {colour.lower(): fate for fate, colour in FATES.items()}
    for place in range(4):  # decisions and sequences of two capacities
        bars = [bar for bar in ax.patches if round(bar.get_y() + bar.get_height() / 2) == place]
        found = {colours[to_hex(bar.get_facecolor())]: bar.get_width() for bar in bars}
        assert found == pytest.approx({"trained": 0.6, "masked": 0.0, "dropped": 0.25, "queued": 0.15})
    texts = {text.get_text() for text in ax.texts}
    assert {"240", "100", "60", "24", "10", "6"} == texts  # of two runs together


def test_lost_rows_are_drawn_and_named_only_where_there_are_some(results: Results, tmp_path: Path) -> None:
    decisions = ENTRIES | {"trained": 80, "lost": 40}
    said = {"ledger": {"decisions": decisions, "sequences": {key: n // 10 for key, n in decisions.items()}}}
    figure = draw("ledger", Results.of([write_run(tmp_path / "lost", capacity=2, said=said)]))
    black = [bar.get_width() for bar in figure.axes[0].patches if to_hex(bar.get_facecolor()) == FATES["lost"]]
    assert black == pytest.approx([0.2, 0.2])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(FATES)
    (legend,) = draw("ledger", results).legends
    assert [text.get_text() for text in legend.get_texts()] == list(FATES)[:-1]


def test_the_names_of_all_fates_fit_a_narrow_figure(tmp_path: Path) -> None:
    decisions = ENTRIES | {"trained": 80, "lost": 40}
    said = {"ledger": {"decisions": decisions, "sequences": {key: n // 10 for key, n in decisions.items()}}}
    figure = draw("ledger", Results.of([write_run(tmp_path, capacity=2, said=said)]), width=3.5)
    figure.canvas.draw()
    (legend,) = figure.legends
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_a_report_shows_the_ledger_only_where_something_was_lost(results: Results, tmp_path: Path) -> None:
    assert "ledger" in names(results)
    kept = {"decisions": ENTRIES | {"generated": 120, "dropped": 0, "queued": 0}}
    all_trained = Results.of([write_run(tmp_path / "other", said={"ledger": kept})])
    assert "ledger" not in names(all_trained) and "ledger" not in names(Results.of([write_run(tmp_path / "none")]))


def test_the_histogram_shows_what_was_trained_on_where_it_differs(results: Results, tmp_path: Path) -> None:
    axes = draw("lag_histogram", results).axes
    assert axes[0].get_title("left") == "K = 2, mean lag 0.50, trained 0.25"
    assert [bar.get_height() for bar in axes[0].patches] == [0.5, 0.5, 0.75, 0.25]
    assert [line.get_xdata()[0] for line in axes[0].lines] == [0.5, 0.25]
    same = {**SAID, "lags": dict.fromkeys(LAGS, LAGS["trained"])}
    alike = Results.of([write_run(tmp_path / "alike", capacity=2, said=same)])
    assert "trained" not in draw("lag_histogram", alike).axes[0].get_title("left")


def dotted_heights(ax: Any) -> list[float]:
    """The heights of dotted lines across the panel."""
    lines = [line for line in ax.lines if line.is_dashed() and line.get_color() == FAINT]
    return [float(line.get_ydata()[0]) for line in lines]


def test_the_untrained_policy_is_a_line(tmp_path: Path) -> None:
    said = {"summary": {"untrained/sampled": 80.0, "untrained/sampled_error": 1.0}}
    places = [(k, seed) for k in (2, 4) for seed in (0, 1)]
    known = Results.of([write_run(tmp_path, seed=s, capacity=k, sampled=50.0 * k + s, said=said) for k, s in places])
    assert dotted_heights(draw("learning_curves", known).axes[0]) == [80.0]
    low, high = 100.0, 201.0
    on_scale = (80.0 - low) / (high - low)
    assert dotted_heights(draw("score_against_capacity", known).axes[0]) == pytest.approx([on_scale])


def test_without_it_or_far_below_there_is_none(tmp_path: Path) -> None:
    summary = {"untrained/sampled": -9000.0, "untrained/sampled_error": 1.0}
    runs = [write_run(tmp_path, capacity=k, sampled=100.0 * k, said={"summary": summary}) for k in (2, 4)]
    assert dotted_heights(draw("score_against_capacity", Results.of(runs)).axes[0]) == []
    plain = Results.of([write_run(tmp_path / "plain", capacity=2)])
    assert dotted_heights(draw("learning_curves", plain).axes[0]) == []


def plane(root: Path) -> Results:
    """Two capacities by two N, with a warm-up of four phases of twelve."""
    return Results.of(
        [
            write_run(
                root,
                f"ppo_clip[epochs={epochs}]",
                seed,
                capacity=k,
                sampled=100.0 * epochs - 10.0 * k + seed,
                settings={"epochs": epochs, "minibatches": 4, "warm_phases": 4},
                columns={"lag_mean": [0.0] * 4 + [float(k - 1)] * 8},
            )
            for epochs in (1, 4)
            for k in (1, 8)
            for seed in (0, 1)
        ]
    )


def test_a_cell_says_score_interval_and_n_at_its_lags(tmp_path: Path) -> None:
    results = plane(tmp_path)
    assert {forward_steps(run) for run in results} == {4, 16}
    assert {(int(r.spec["capacity"]), backward_lag(r)) for r in results} == {(1, 0.0), (8, 7.0)}
    (block,) = sheet("backward_forward", results).blocks
    assert block.title == "ppo_clip" and list(block.columns) == ["lag 0.0, K = 1", "lag 7.0, K = 8"]
    assert [name for name, _ in block.rows] == ["16 steps", "4 steps"]
    table = {(r["capacity"], r["algorithm"]): r for r in results.table().rows}
    for (_, entries), epochs in zip(block.rows, (4, 1), strict=True):
        for entry, k in zip(entries, (1, 8), strict=True):
            row = table[k, f"ppo_clip[epochs={epochs}]"]
            assert entry.value == f"{row['iqm']:.2f}" and entry.shade == pytest.approx(row["iqm"])
            assert entry.below == f"[{row['iqm_low']:.2f}, {row['iqm_high']:.2f}] n = 2"


def test_a_report_shows_the_plane_where_there_is_one(tmp_path: Path, results: Results) -> None:
    whole = plane(tmp_path / "plane")
    assert "backward_forward" in names(whole) and "backward_forward" not in names(results)
    assert "backward_forward" not in names(whole.select(k=8))
