"""Figures by name: all that are registered, those of a report, and panels in axes of the user."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn import all_figures
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from results_helper import write_grid

from staleharness.errors import UserError
from staleharness.figures import registry
from staleharness.figures.registry import FIGURES, draw, draw_panel, sections, sheet
from staleharness.statistics.results import Results
from staleharness.statistics.table import Table


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    root = tmp_path_factory.mktemp("results")
    return Results.of(write_grid(root, ("spo", "vaco"), envs=("A-v1", "B-v1"), capacities=(1, 4), phases=6))


@pytest.fixture(scope="module")
def table(results: Results) -> Table:
    return results.table(reps=50, engine="quick")


@pytest.mark.parametrize(("registry_of", "count"), [("FIGURES", 27), ("SHEETS", 7)])
def test_everything_that_a_file_registers_is_found(registry_of: str, count: int) -> None:
    files = Path(registry.__file__).parent.glob("*.py")
    pattern = rf'{registry_of}\.register\(\s*"(\w+)"'
    names = [name for file in files for name in re.findall(pattern, file.read_text())]
    assert sorted(names) == list(getattr(registry, registry_of)) and len(names) == count


def test_a_registered_section_is_in_the_report_at_its_place(
    results: Results, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [drawing.name for drawing in sections(results)]
    monkeypatch.setattr(FIGURES, "_entries", dict(FIGURES._entries))
    asked: list[Results] = []

    @FIGURES.register("mine", registry.Section(15, "Mine", "It is mine.", lambda runs: not asked.append(runs)))
    def mine(results: Results, table: Table, width: float = 7.0) -> Figure:
        return Figure(figsize=(width, 1))

    FIGURES.register("never", registry.Section(16, "Never", "", lambda runs: False))(mine)
    assert [d.name for d in sections(results)] == [before[0], "mine", *before[1:]] and asked == [results]
    assert all_figures(results, table, 3.0)["mine"].get_figwidth() == 3.0
    assert sections(Results.of([])) == []


def test_a_report_shows_its_figures_in_this_order() -> None:
    known = [*FIGURES.values(), *registry.SHEETS.values()]
    placed = sorted((d.section.place, d.name) for d in known if d.section is not None)
    assert [name for _, name in placed] == [
        "retained_shares",
        "learning_curves",
        "aggregate_curves",
        "score_against_capacity",
        "backward_forward",
        "aggregate_scores",
        "lag_histogram",
        "ledger",
        "staleness",
        "score_by_mismatch",
        "two_factors",
        "where_the_time_goes",
        "actors_and_trainer",
    ]


def test_a_figure_is_drawn_by_name_with_its_options_checked(results: Results, table: Table) -> None:
    figure = draw("score_against_capacity", results, table, delay=True)
    assert figure.axes[0].get_xlabel() == "delay in phases (log of delay + 1)"
    with pytest.raises(UserError, match="has no option 'dely'; did you mean 'delay'"):
        draw("score_against_capacity", results, table, dely=True)
    with pytest.raises(UserError, match="needs the option 'metric'"):
        draw("metric_over_training", results, table)


# --- panels in an axis of the user's


def test_wrong_results_and_axes_are_refused(results: Results) -> None:
    anything: Any = 3
    for make in (draw, sheet):
        with pytest.raises(UserError, match=f"{make.__name__}: 3 is not a Results object; give what sh.load"):
            make("learning_curves", anything)
    with pytest.raises(UserError, match="draw_panel: 3 is not a Results object"):
        draw_panel("learning_curves", anything, Figure().subplots())
    with pytest.raises(UserError, match=r"draw_panel: 3 is not an Axes of matplotlib"):
        draw_panel("learning_curves", results, anything)


def test_figures_without_runs_are_refused(results: Results) -> None:
    none = Results.of([])
    for make, known in ((draw, FIGURES), (sheet, registry.SHEETS)):
        for name in known:
            with pytest.raises(UserError, match=r"these results hold none|needs the option"):
                make(name, none)
    ax = Figure().subplots()
    for name in [name for name, drawing in FIGURES.items() if drawing.panel is not None]:
        with pytest.raises(UserError, match="these results hold none"):
            draw_panel(name, none, ax)
    assert not ax.has_data()


def heights(ax: Axes) -> list[list[float]]:
    return [np.asarray(line.get_ydata()).tolist() for line in ax.lines]


def test_a_learning_curve_in_an_axis_is_that_of_the_whole_figure(results: Results, table: Table) -> None:
    whole = draw("learning_curves", results, table)
    ax = Figure().subplots()
    assert draw_panel("learning_curves", results, ax, table, env="b", k=4) is ax
    (drawn,) = [panel for panel in whole.axes if panel.get_title("left") == "B-v1, K = 4"]
    assert heights(ax) == heights(drawn) and ax.get_title("left") == "B-v1, K = 4"
    assert ax.get_ylabel() == "return" and ax.get_xlabel() == table.settings["unit"]
    assert [text.get_text() for text in ax.legend().get_texts()] == ["SPO", "VACO"]


@pytest.mark.parametrize(
    ("name", "place", "options"), [("score_against_capacity", 0, {}), ("lag_histogram", 1, {"k": 4})]
)
def test_a_panel_in_an_axis_is_that_of_the_figure(
    results: Results, table: Table, name: str, place: int, options: dict[str, int]
) -> None:
    ax, panel = Figure().subplots(), draw(name, results, table).axes[place]
    draw_panel(name, results, ax, table, **options)
    assert heights(ax) == heights(panel) and ax.get_xlabel() == panel.get_xlabel()
    assert [bar.get_height() for bar in ax.patches] == [bar.get_height() for bar in panel.patches]
    assert ax.get_title("left") == panel.get_title("left")


def test_a_panel_needs_env_and_k_only_if_there_are_several(results: Results) -> None:
    one = results.select(env="A", k=4)
    ax = Figure().subplots()
    draw_panel("learning_curves", one, ax)
    assert ax.get_title("left") == "A-v1, K = 4"
    for options, words in (
        ({}, "env=None: one panel shows one env; these results have A-v1, B-v1"),
        ({"env": "C", "k": 4}, "env='C': one panel"),
        ({"env": "A", "k": 3}, "k=3: one panel shows one k; these results have 1, 4"),
    ):
        with pytest.raises(UserError, match=re.escape(words)):
            draw_panel("learning_curves", results, ax, **options)
    with pytest.raises(UserError, match="figure 'staleness' cannot be drawn into one Axes"):
        draw_panel("staleness", results, ax)
