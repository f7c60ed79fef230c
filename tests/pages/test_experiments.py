"""Every file of a paper, a figure or a study in experiments/ is read and planned, and the committed pages follow."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from needs import require_model
from paper_studies import FIGURES, LANGUAGE, PAPERS, STUDIES, is_published, published_figures
from places import ROOT

from staleharness.base.parsing import parse_choice, without_n
from staleharness.figures import registry
from staleharness.pages import paper_gallery
from staleharness.pages.paper_figure_specs import read_paper
from staleharness.pages.paper_verdict_summary import summary_page
from staleharness.pages.verdict_text import verdict_lines
from staleharness.running.plan import plan
from staleharness.statistics.claims.claim_schema import CANNOT_TELL, VOCABULARY
from staleharness.statistics.method_labels import without_options
from staleharness.study import SCALES, plain_env, read_study
from staleharness.task import ENVS


@pytest.mark.parametrize(
    ("file", "scale"),
    [
        pytest.param(file, scale, id=f"{file.stem}-{scale}")
        for file in STUDIES
        for scale in SCALES
        if scale == "small" or read_study(file).paper
    ],
)
def test_a_planned_study_has_the_labels_of_its_runs(file: Path, scale: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LANGUAGE:  # without the check that model and data can be had, which would use the network
        monkeypatch.setattr(ENVS[name], "check", classmethod(lambda cls, spec: None))
    study = read_study(file)
    asked = study.at(scale)
    require_model(asked)
    made = plan(replace(asked, seeds=1))  # the others are asked for in the same words
    cells = {(run.label, run.spec.capacity, plain_env(run.spec.env)) for run in made.runs}
    assert study.question
    assert cells == {(label, k, plain_env(env)) for label, k, env in asked.cells()}
    assert len(made.runs) == len(cells)
    if asked.lag:  # figures find runs by this text
        assert asked.lag in {run.spec.lag for run in made.runs}


@pytest.mark.parametrize("name", FIGURES)
def test_a_share_kept_is_tested_after_a_score(name: str) -> None:
    """A share is a ratio with a noisy denominator: five seeds rarely tell two apart. Learning rates alone are compared
    by shares, since they differ without lag, too."""
    entry = FIGURES[name].entry
    measures = [part.what for part in entry.part if not part.untested]
    across_rates = entry.options.get("option") == "learning_rate"
    assert "kept" not in measures or across_rates or measures[0] in ("score", "return", "area")


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_names_a_drawing_function_that_takes_its_options(name: str) -> None:
    entry = FIGURES[name].entry
    registry.check_drawing(entry.draw, entry.options, name)
    assert entry.question.endswith("?")
    assert entry.claim or entry.motivation
    labels = {label for label, _, _ in FIGURES[name].request.cells()}
    assert set(entry.only) <= labels
    lines = {without_n(label) for label in labels}  # of a figure over N
    for option in ("option", "across"):
        lines |= {without_options(label, entry.options.get(option, "")) for label in lines}
    models = {parse_choice(without_n(label)).options.get("mismatch") for label in labels}  # heads of columns
    assert set(entry.names) <= (set(entry.only) or labels | lines | models)


@pytest.mark.parametrize("name", FIGURES)
def test_nobody_says_what_was_seen_before_every_run_is_there(name: str) -> None:
    f = FIGURES[name]
    tested = bool(f.entry.verdict or f.entry.part) and is_published(f.entry.study)
    assert tested <= bool(f.entry.observation)
    assert not f.entry.observation or is_published(f.entry.study)


def test_the_committed_pages_are_those_that_the_files_make_now() -> None:
    folder = ROOT / "docs" / "gallery"
    assert (folder / "README.md").read_text(encoding="utf-8") == paper_gallery.index(folder)
    for name in PAPERS:
        paper, figures = read_paper(name)
        assert paper.about in (folder / f"{name}.md").read_text(encoding="utf-8"), f"make figures PAPER={name}"
        text = (folder / name / "evidence.md").read_text(encoding="utf-8")
        for f in figures:
            assert not f.entry.claim or f"**The {paper.source}:** {f.entry.claim}\n" in text
            for said in (f.heading, f.entry.question, f.entry.claim, f.entry.motivation):
                assert said in text, f"{f.name}: make figures PAPER={name}"


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.long
def test_verdicts_on_committed_pages_are_those_of_the_runs(name: str) -> None:
    folder = ROOT / "docs" / "gallery"
    text = (folder / name / "evidence.md").read_text(encoding="utf-8")
    paper, figures = read_paper(name)
    shown = published_figures(name)
    summary = (folder / f"{name}.md").read_text(encoding="utf-8")
    assert summary == summary_page(paper, name, figures, shown, folder), f"make figures PAPER={name}"
    for s in shown:
        said = "\n".join(verdict_lines(s))
        assert said in text, f"{s.figure.name}: {s.command('figures')}"
        if s.state != "drawn":
            continue
        assert "{" not in s.claim_result.observation
        theirs = [part for part in s.figure.entry.part if part.role == "claim"]
        assert s.claim_result.verdict in (VOCABULARY if theirs else ("", CANNOT_TELL))


def test_committed_pages_link_to_committed_files() -> None:
    for page in (ROOT / "docs" / "gallery").rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
        links = [one or other for one, other in links]
        there = [link.partition("#")[0] for link in links if not link.startswith("http")]
        assert there or "| --- |" in text  # a page may hold tables alone
        assert all((page.parent / link).is_file() for link in there)
        assert {Path(link).suffix for link in there} <= {".md", ".png"}


@pytest.mark.parametrize("name", sorted({f.paper for f in FIGURES.values()}))
@pytest.mark.long
def test_committed_pictures_are_of_the_committed_runs(name: str) -> None:
    pictures = ROOT / "docs" / "gallery" / name
    text = (pictures / "evidence.md").read_text(encoding="utf-8")
    for s in published_figures(name):
        for file in (pictures / f"{s.figure.name}.png", pictures / f"{s.figure.name}_narrow.png"):
            if s.state == "no bundle" or s.figure.entry.draw in registry.SHEETS:
                assert not file.exists()
                assert (f"<!-- {s.source} -->" in text) == (s.state != "no bundle"), s.command("figures")
            else:
                assert s.source.encode() in file.read_bytes(), f"{file.name}: {s.command('figures')}"
                assert f'="{file.name}"' in text
