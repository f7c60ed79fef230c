"""Time of training: beside the score by hand, and of language runs by part of a phase, as bars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from drawn import all_figures, quick
from matplotlib.backends.backend_agg import FigureCanvasAgg
from results_helper import write_run

from staleharness.figures.plot_layout import COLUMN
from staleharness.figures.table_markup import SheetCell
from staleharness.figures.training_time import PARTS, _clock_unit, score_and_time, where_the_time_goes
from staleharness.statistics import aggregate as stats
from staleharness.statistics.results import Results
from staleharness.store.store import StoredRun

LANGUAGE: dict[str, Any] = {"kind": "language", "env": "word-problems", "settings": {"prompts": 16}}


def spend(run: StoredRun, **seconds: list[float]) -> StoredRun:
    """The run with these seconds per phase in place of those it was written with."""
    pd.DataFrame(seconds).to_parquet(run.path / "timing.parquet")
    return run


@pytest.fixture
def runs(tmp_path: Path) -> list[StoredRun]:
    def write(label: str, capacity: int, seconds: dict[str, list[float]]) -> StoredRun:
        phases = len(seconds["generate"])
        return spend(write_run(tmp_path, label, 0, capacity=capacity, phases=phases, **LANGUAGE), **seconds)

    parts = ("generate", "score", "proximal", "loss", "train", "evaluate")
    seconds = {
        ("a3po", 1): ([1.0, 3.0], [0.5, 0.5], [1e-6, 1e-6], [0.002, 0.004], [1.0, 1.0], [0.0, 2.0]),
        ("a3po", 4): ([4.0], [0.5], [1e-6], [0.003], [1.0], [1.0]),
        ("decoupled_ppo", 1): ([2.0], [0.5], [0.25], [0.003], [1.0], [1.0]),
    }
    return [write(label, k, dict(zip(parts, times, strict=True))) for (label, k), times in seconds.items()]


@pytest.mark.parametrize("width", [7.0, COLUMN])
def test_bars_are_mean_seconds_by_part_of_a_phase(runs: list[StoredRun], width: float) -> None:
    figure = where_the_time_goes(Results.of(runs), stats.table(runs, reps=20), width)
    (ax,) = figure.axes
    assert len(ax.patches) == 2 * len(PARTS)
    widths = [p.get_width() for p in ax.patches]
    assert widths == pytest.approx([3.0, 0.5, 1e-6, 0.003, 1.0, 1.0, 2.0, 0.5, 0.25, 0.003, 1.0, 1.0])
    assert [round(p.get_y() + 0.35) for p in ax.patches] == [0] * 6 + [1] * 6
    starts = [p.get_x() for p in ax.patches][:6]
    assert starts == pytest.approx([0.0, 3.0, 3.5, 3.500001, 3.503001, 4.503001])
    wanted = {
        7.0: ["proximal < 0.1 ms, loss 3 ms", "proximal 250 ms, loss 3 ms"],
        COLUMN: ["< 0.1 ms, 3 ms", "250 ms, 3 ms"],
    }
    assert [t.get_text() for t in ax.texts] == wanted[width]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["A-3PO", "decoupled PPO"]


def test_bars_leave_out_phases_that_fill_the_buffer(tmp_path: Path) -> None:
    settings = {**LANGUAGE["settings"], "fill_phases": 1}
    run = write_run(tmp_path, "a3po", 0, phases=3, **{**LANGUAGE, "settings": settings})
    run = spend(run, **{part: [9.0, 1.0, 2.0] for part in PARTS})
    (ax,) = where_the_time_goes(Results.of([run]), stats.table([run], reps=20)).axes
    assert [p.get_width() for p in ax.patches] == pytest.approx([1.5] * len(PARTS))


def test_the_words_at_the_bars_stay_on_the_page(runs: list[StoredRun]) -> None:
    for width in (7.0, COLUMN):
        figure = where_the_time_goes(Results.of(runs), stats.table(runs, reps=20), width)
        renderer = FigureCanvasAgg(figure).get_renderer()
        for text in figure.axes[0].texts:
            assert text.get_window_extent(renderer).x1 <= width * figure.dpi


def test_only_language_runs_have_the_figure(runs: list[StoredRun], tmp_path: Path) -> None:
    assert "where_the_time_goes" in all_figures(Results.of(runs), stats.table(runs, reps=20))
    control = [write_run(tmp_path / "control", "ppo_clip", seed) for seed in (0, 1)]
    assert "where_the_time_goes" not in all_figures(Results.of(control), stats.table(control, reps=20))


def test_the_table_of_scores_and_times_is_by_hand(tmp_path: Path) -> None:
    def write(label: str, seed: int, k: int, score: float) -> StoredRun:
        own = {"sampled": score, "deterministic": score, "kind": "language", "phases": 2}
        return write_run(tmp_path, label, seed, env="w", capacity=k, **own)

    runs = [write("a3po", 0, 1, 0.5), write("a3po", 1, 1, 0.7), write("spo", 0, 4, 0.25)]
    for run, seconds in zip(runs, (30.0, 60.0), strict=False):
        timing = {"collect": [seconds] * 2, "learn": [15.0] * 2, "evaluate": [99.0] * 2, "proximal": [0.0, 9.0]}
        pd.DataFrame(timing).to_parquet(run.path / "timing.parquet")
    timing = {"collect": [1.0, 1.0], "learn": [1.0, 1.0], "proximal": [0.0, 0.0]}
    pd.DataFrame(timing).to_parquet(runs[2].path / "timing.parquet")
    times = score_and_time(Results.of(runs), quick(runs))
    score, time, share = times.blocks
    (row,) = [r for r in quick(runs).rows if (r["algorithm"], r["capacity"]) == ("a3po", 1)]
    interval = f"[{row['iqm_low']:.3f}, {row['iqm_high']:.3f}]"
    absent = SheetCell("–")
    assert list(score.columns) == ["K = 1", "K = 4"]
    assert score.rows == [("A-3PO", [SheetCell("0.600", interval), absent]), ("SPO", [absent, SheetCell("0.250")])]
    assert time.rows == [("A-3PO", [SheetCell("2.00", "(1.50 to 2.50)"), absent]), ("SPO", [absent, SheetCell("0.07")])]
    assert share.rows == [("A-3PO", [SheetCell("8.0", "(6.0 to 10.0)"), absent]), ("SPO", [absent, SheetCell("0.0")])]
    assert [block.title for block in times.blocks] == [
        "final greedy accuracy",
        "training time, minutes",
        "of it in the proximal step, %",
    ]


def test_the_unit_of_time_fits_the_longest_run() -> None:
    assert [_clock_unit(s)[1] for s in (59.0, 60.0, 3599.0, 3600.0)] == ["seconds", "minutes", "minutes", "hours"]
