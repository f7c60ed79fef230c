"""Runs of a bundle that belong to a figure, and those that are missing."""

from __future__ import annotations

from pathlib import Path

from results_helper import write_grid, write_run

from staleharness.pages import paper_gallery
from staleharness.pages.figure_provenance import figure_facts
from staleharness.pages.paper_figure_data import load_figures
from staleharness.pages.paper_figure_specs import read_paper
from staleharness.store.study_runs import StudyRuns, label_options, read_study_runs


def bundle_of(root: Path, shelf: Path) -> StudyRuns:
    _, (figure,) = read_paper("p", shelf)
    found = read_study_runs(root, figure.request, "small")
    assert found is not None
    return found


def test_a_bundle_is_complete_with_every_seed_of_every_cell(shelf: Path, tmp_path: Path) -> None:
    root = tmp_path / "s"
    write_grid(root, ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    assert bundle_of(root, shelf).complete
    write_run(root, "spo", 0, env="A-v5", capacity=1)
    write_run(root, "vaco", 2, env="A-v5", capacity=1)
    write_run(root, "vaco", 0, env="A-v5", capacity=1, settings={"num_envs": 8})
    write_run(root, "vaco", 0, env="A-v5", capacity=1, settings={"lag": "fixed:0"})
    found = bundle_of(root, shelf)
    assert found.complete and found.other_runs == 4 and len(found.runs) == 8


def test_options_in_a_label_replace_the_studys_setting(shelf: Path, tmp_path: Path) -> None:
    label = "vaco[lag=fixed:0,num_envs=8]"
    study = shelf / "s.toml"
    study.write_text(study.read_text().replace('"ppo_clip", "vaco"', f'"vaco", "{label}"'))
    for seed in (0, 1):
        for k in (1, 4):
            write_run(tmp_path / "s", "vaco", seed, env="A-v5", capacity=k)
            settings = {"lag": "fixed:0", "num_envs": 8}
            write_run(tmp_path / "s", label, seed, env="A-v5", capacity=k, settings=settings)
    found = bundle_of(tmp_path / "s", shelf)
    assert found.complete and found.other_runs == 0
    assert label_options(label) == {"lag": "fixed:0", "num_envs": 8}
    assert label_options("vaco[delta=0.1] N=4") == {"delta": 0.1} and label_options("vaco") == {}


def test_a_missing_run_makes_it_a_draft(shelf: Path, tmp_path: Path) -> None:
    root = tmp_path / "s"
    runs = write_grid(root, ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    for file in runs[0].path.iterdir():
        file.unlink()
    runs[0].path.rmdir()
    paper, figures = read_paper("p", shelf)
    (shown,) = load_figures(figures, tmp_path, reps=50)
    assert shown.state == "draft" and shown.table is not None and shown.table.draft
    assert "7 of 8 runs" in figure_facts(shown) and figure_facts(shown).startswith("DRAFT")
    paper_gallery.make(paper, figures, [shown], ["fig2"], tmp_path / "out")
    assert "| [draft](p/fig2.png) |" in paper_gallery.index(tmp_path / "out")
    write_grid(root, ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    paper_gallery.make(paper, figures, load_figures(figures, tmp_path, reps=50), ["fig2"], tmp_path / "out")
    assert "| [yes](p/fig2.png) |" in paper_gallery.index(tmp_path / "out")


def test_no_bundle_is_said_and_nothing_is_drawn(shelf: Path, tmp_path: Path) -> None:
    paper, figures = read_paper("p", shelf)
    shown = load_figures(figures, tmp_path / "nowhere")
    written = paper_gallery.make(paper, figures, shown, ["fig2"], tmp_path / "out")
    assert {path.suffix for path in written} == {".md", ".html"}
    text = (tmp_path / "out" / "p" / "evidence.md").read_text()
    assert "No bundle yet: `make reproduce PAPER=p FIG=2`" in text and "![" not in text


def test_a_draft_lists_its_tests_and_makes_none(shelf: Path, tmp_path: Path) -> None:
    with (shelf / "p" / "fig2.toml").open("a") as stream:
        stream.write('[[part]]\nsays = "VACO ends higher"\nof = ["vaco"]\nover = ["ppo_clip"]\nk = [4]\n')
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=1)
    paper, figures = read_paper("p", shelf)
    planned = "To test, with all runs"
    for seeds, is_draft in ((1, True), (2, False)):
        write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=seeds)
        paper_gallery.make(paper, figures, load_figures(figures, tmp_path, reps=50), ["fig2"], tmp_path / "out")
        text = (tmp_path / "out" / "p" / "evidence.md").read_text()
        html = (tmp_path / "out" / "p.html").read_text()
        assert (f"**{planned}:** VACO ends higher." in text) == is_draft
        assert (f"<dt>{planned}</dt><dd>VACO ends higher.</dd>" in html) == is_draft
        assert ("| VACO ends higher | " in text) == (not is_draft)
