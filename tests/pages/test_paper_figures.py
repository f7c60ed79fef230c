"""Every figure in experiments/ is drawn from results of its study's shape."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from drawn import texts_outside
from paper_studies import FIGURES, write_study
from quick_figures import draw_quickly

from staleharness.base.reference_results import reference_folder
from staleharness.figures import (
    comparisons,
    curves_and_summary,
    learning_curves,
    metric_curves,
    palette,
    plot_layout,
    registry,
)
from staleharness.pages.paper_figure_data import GalleryFigure, load_figures
from staleharness.statistics import retained_share


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, GalleryFigure]]:
    """Every figure with results of its study's shape: one environment, two seeds of a few phases."""
    root = tmp_path_factory.mktemp("bundles")
    for study, request in {f.entry.study: f.request for f in FIGURES.values()}.items():
        write_study(root / study, request)
    with pytest.MonkeyPatch.context() as patch:
        for module in (curves_and_summary, metric_curves):
            patch.setattr(module, "check_metric", lambda *_: None)  # the runs have few columns
        for module in (comparisons, curves_and_summary, learning_curves):
            patch.setattr(module, "REPS", 50)
        patch.setattr(retained_share, "compare_pairs", lambda *_: {})  # of thousands of pairs; no figure shows them
        shown = load_figures(list(FIGURES.values()), root, reps=50, engine="quick")
        yield dict(zip(FIGURES, shown, strict=True))


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.long
def test_every_figure_is_drawn_from_runs_of_its_studys_shape(
    name: str, figures: dict[str, GalleryFigure], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_quickly(monkeypatch)
    shown, entry = figures[name], figures[name].figure.entry
    assert shown.bundle is not None and shown.table is not None
    draft = len(shown.bundle.requests) > 1  # a study of one run is whole
    assert shown.state == ("draft" if draft else "drawn")
    if entry.draw in registry.SHEETS:
        made = registry.sheet(entry.draw, shown.results, shown.table, **entry.options)
        assert made.lines[0].startswith("DRAFT") and made.blocks[0].rows
        say_what_they_rest_on(" ".join(made.lines).lower())
        return
    figure = registry.draw(entry.draw, shown.results, shown.table, **entry.options)
    say_what_they_rest_on(" ".join(figure._suptitle.get_text().split()))
    assert any(text.get_text() == "DRAFT" for text in figure.texts) == draft
    assert not any(ax.images for ax in figure.axes)  # a browser blurs their pixels


def say_what_they_rest_on(said: str) -> None:
    for words in ("small scale: 4 phases", "runs of 2026-11-20", "n = ", "interval"):
        assert words in said, said


@pytest.mark.long
def test_an_algorithm_has_one_colour_in_all_figures_of_a_study(figures: dict[str, GalleryFigure]) -> None:
    seen: dict[tuple[str, str], set[str]] = {}
    for shown in figures.values():
        assert shown.table is not None
        for label, look in palette.looks_of(shown.table).items():
            seen.setdefault((shown.figure.entry.study, label), set()).add(look.colour)
    assert all(len(colours) == 1 for colours in seen.values())


@pytest.mark.parametrize("draw", registry.FIGURES)
@pytest.mark.long
def test_no_text_hangs_over_a_narrow_page(draw: str, figures: dict[str, GalleryFigure]) -> None:
    for shown in figures.values():
        entry = shown.figure.entry
        if entry.draw == draw and shown.bundle is not None and shown.table is not None:
            figure = registry.draw(draw, shown.results, shown.table, plot_layout.COLUMN, **entry.options)
            assert texts_outside(figure) == []
            return


def test_numbers_of_another_study_include_the_runs_that_it_reuses() -> None:
    shown = load_figures([FIGURES["vaco/width"]], reference_folder(), reps=50)[0]
    of_other = shown.evidence_of("vaco_ratio_window").results
    assert {"a3po", "ppo_clip[anchor=proximal]"} <= {run.label for run in of_other}, "A-3PO's runs are vaco_ratio's"
