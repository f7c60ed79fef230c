"""Figures of rows with enough runs for an interval beside rows without: each is drawn and captioned as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn import second_line
from results_helper import write_run

from staleharness.figures.captions import band, bars, below, spread
from staleharness.figures.comparisons import differences_from_baseline, performance_profiles, probability_of_improvement
from staleharness.figures.lag_tables import risk_table
from staleharness.figures.option_scores import phase_diagram
from staleharness.figures.training_time import score_and_time
from staleharness.statistics.aggregate import show_single_runs
from staleharness.statistics.results import Results, load
from staleharness.statistics.table import Table

SEEDS = {"ppo_clip": 6, "spo": 6, "vaco": 3}
ResultsAndTable = tuple[Results, Table]


def write_and_load(root: Path, seeds: dict[str, int], at_1: dict[str, int] | None = None) -> ResultsAndTable:
    for label, n in seeds.items():
        for k, count in ((1, (at_1 or seeds)[label]), (4, n)):
            for seed in range(count):
                height = 900.0 / k + 30 * float(np.random.default_rng([len(label), k, seed]).standard_normal())
                write_run(root, label, seed, capacity=k, sampled=height, phases=4)
    results = load(root)
    return results, show_single_runs(results.table(reps=50, engine="quick"), results.grid)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> ResultsAndTable:
    return write_and_load(tmp_path_factory.mktemp("mixed"), SEEDS)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> ResultsAndTable:
    return write_and_load(tmp_path_factory.mktemp("few"), dict.fromkeys(SEEDS, 3))


def test_captions_name_intervals_and_runs_where_both_are_drawn(mixed: ResultsAndTable, small: ResultsAndTable) -> None:
    table = mixed[1]
    assert bars(table) == "bars: 95% stratified bootstrap interval, or dots: the runs where too few for one"
    assert band(table).endswith("bootstrap interval, or thin lines: the runs where too few for one")
    assert spread(table).endswith("(Student's), or band: range of the runs where too few for one")
    assert below(table) == "its 95% stratified bootstrap interval, or its runs where too few for one"
    assert bars(small[1]) == "dots: the runs (too few for an interval)"


def test_tables_say_what_stands_below_a_number(mixed: ResultsAndTable, small: ResultsAndTable) -> None:
    assert "with its runs (too few for an interval); time" in score_and_time(*small).about[0]
    assert "with its 95% stratified bootstrap interval, or its runs where" in score_and_time(*mixed).about[0]
    assert "with its runs (too few" in phase_diagram(*small, option="num_steps").about[0]


def test_a_chance_has_its_interval_where_both_have_runs_enough(mixed: ResultsAndTable, small: ResultsAndTable) -> None:
    figure = probability_of_improvement(*mixed)
    assert [len(ax.patches) for ax in figure.axes] == [1, 1]  # SPO's; VACO has three runs
    assert "bars: 95% stratified bootstrap interval, none where the runs are too few" in second_line(figure)
    figure = probability_of_improvement(*small)
    assert not any(ax.patches for ax in figure.axes) and "seeds, too few for an interval;" in second_line(figure)


def test_profiles_of_few_runs_have_no_band(mixed: ResultsAndTable, small: ResultsAndTable) -> None:
    figure = performance_profiles(*mixed)
    assert [len(ax.collections) for ax in figure.axes] == [2, 2]
    assert "interval, none where the runs are too few" in second_line(figure)
    figure = performance_profiles(*small)
    assert not any(ax.collections for ax in figure.axes) and "too few for an interval" in second_line(figure)


def test_a_share_kept_needs_runs_enough_at_both_ends(tmp_path: Path) -> None:
    sheet = risk_table(*write_and_load(tmp_path, {"vaco": 6}, at_1={"vaco": 3}))
    ((_, line),) = sheet.blocks[0].rows
    assert [entry.below for entry in line] == [""] * len(line)
    assert "95% bootstrap interval over seeds in brackets, of 5 or more" in sheet.about[0]


def test_a_figure_of_one_capacity_counts_its_seeds(tmp_path: Path) -> None:
    figure = differences_from_baseline(
        *write_and_load(tmp_path, {"ppo_clip": 6, "spo": 6}, at_1={"ppo_clip": 3, "spo": 3})
    )
    assert "runs (n = 6 seeds)" in second_line(figure)
