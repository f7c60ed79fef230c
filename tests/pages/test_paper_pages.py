"""The pages of a paper: what they say of each figure, and that they are made of the runs alone."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from results_helper import write_grid, write_run

from staleharness.errors import UserError
from staleharness.pages import paper_gallery
from staleharness.pages.figure_provenance import figure_facts
from staleharness.pages.paper_figure_data import load_figures
from staleharness.pages.paper_figure_specs import read_paper
from staleharness.pages.verdict_text import verdict_on_page, verdict_words
from staleharness.store.store import Store


def test_a_figure_says_what_the_runs_say(shelf: Path, tmp_path: Path) -> None:
    """From the file, through the tests, to the page and to the list of all papers."""
    for seed in range(4):
        for k, scores in ((1, (100.0, 100.0)), (4, (20.1 - seed % 2 / 5, 60.0))):
            for label, score in zip(("ppo_clip", "vaco"), scores, strict=True):
                write_run(tmp_path / "s", label, seed, env="A-v5", capacity=k, sampled=score + seed, phases=3)
    study = shelf / "s.toml"
    study.write_text(study.read_text().replace("seeds = 2", "seeds = 4"))
    with (shelf / "p" / "fig2.toml").open("a") as stream:
        stream.write(
            'observation = "It returns {return vaco K=4}, {return vaco K=4 over=ppo_clip} more; {above vaco K=4}."\n'
            '[[part]]\nsays = "VACO ends higher"\nof = ["vaco"]\nover = ["ppo_clip"]\nk = [4]\nwhat = "return"\n'
            '[[part]]\nsays = "and without lag, too"\nof = ["vaco"]\nover = ["ppo_clip"]\nk = [1]\nwhat = "return"\n'
        )
    paper, figures = read_paper("p", shelf)
    (shown,) = load_figures(figures, tmp_path, reps=50)
    assert shown.claim_result.verdict == "partly" and [t.outcome for t in shown.claim_result.parts] == ["yes", "open"]
    assert shown.claim_result.observation == "It returns 62 (60, 61, 62, 63), 40 [38, 42] more; 4 of 4."
    paper_gallery.make(paper, figures, [shown], ["fig2"], tmp_path / "out")
    page = (tmp_path / "out" / "p" / "evidence.md").read_text()
    assert "**Verdict:** partly." in page and "| VACO ends higher | holds | return, VACO − PPO-clip, K = 4 |" in page
    assert "40 [38, 42]" in page and "| 4 |" in page and "**We saw:** It returns 62" in page
    assert 'data-word="partly">partly</b>' in (tmp_path / "out" / "p.html").read_text()
    assert verdict_on_page(page) == "partly"


def test_a_page_calls_the_source_of_its_claims_what_it_is(shelf: Path, tmp_path: Path) -> None:
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    for written, source in (("", "paper"), ('source = "lesson"\n', "lesson")):
        with (shelf / "p" / "paper.toml").open("a") as stream:
            stream.write(written)
        paper, figures = read_paper("p", shelf)
        paper_gallery.make(paper, figures, load_figures(figures, tmp_path, reps=50), ["fig2"], tmp_path / "out")
        assert f"**The {source}:** C." in (tmp_path / "out" / "p" / "evidence.md").read_text()
        assert f"<dt>The {source}</dt><dd>C.</dd>" in (tmp_path / "out" / "p.html").read_text()


def test_runs_of_other_studies_are_named_and_those_repeated_for_them(shelf: Path, tmp_path: Path) -> None:
    held = {"s": (0, 1, 2), "t": (0, 2), "u": (1, 2)}
    for study, seeds in held.items():
        for seed in seeds:
            other = {"metrics_sha256": "0" * 64} if (study, seed) == ("u", 1) else {}
            write_run(tmp_path / study, "vaco", seed, env="A-v5", capacity=1, phases=3, said=other)
    (shelf / "s.toml").write_text('question = "Q?"\nenv = "A"\nalgorithm = ["vaco"]\nseeds = 3\n')
    (shown,) = load_figures(read_paper("p", shelf)[1], tmp_path, reps=50)
    assert (
        " 2 of these runs (VACO; seeds 0, 2) also belong to t and u, so the results there are not independent evidence."
        " 1 run (VACO; seed 1) was repeated for u on another kind of processor or by another version of the code, with "
        "different numbers."
    ) in figure_facts(shown)


def test_what_a_text_quotes_must_be_there(shelf: Path, tmp_path: Path) -> None:
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    with (shelf / "p" / "fig2.toml").open("a") as stream:
        stream.write('observation = "{return vacco K=4}"\n')
    (shown,) = load_figures(read_paper("p", shelf)[1], tmp_path, reps=50)
    with pytest.raises(UserError, match=re.escape("p/fig2.toml: {return vacco K=4}: vacco has no run at K=4")):
        _ = shown.claim_result


@pytest.mark.parametrize("state", ["absent", "without runs", "in part"])
def test_a_figure_is_drawn_where_a_study_of_its_tests_is_absent(shelf: Path, tmp_path: Path, state: str) -> None:
    """Also where the study was stopped before its last run."""
    (shelf / "t.toml").write_text((shelf / "s.toml").read_text())
    if state != "absent":
        Store(tmp_path / "t").open_for_writing()
    if state == "in part":
        write_grid(tmp_path / "t", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=1)
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    with (shelf / "p" / "paper.toml").open("a") as stream:
        stream.write('conclusion = "It keeps {return vaco K=4 study=t}."\nconclusion_from = "fig2"\n')
    with (shelf / "p" / "fig2.toml").open("a") as stream:
        stream.write(
            'observation = "{return vaco K=4} and {return vaco K=4 study=u}."\n'
            '[[part]]\nsays = "VACO ends higher"\nof = ["vaco"]\nover = ["ppo_clip"]\nk = [4]\nstudy = "t"\n'
        )
    paper, figures = read_paper("p", shelf)
    entries = load_figures(figures, tmp_path, reps=50)
    paper_gallery.make(paper, figures, entries, ["fig2"], tmp_path / "out")
    page = (tmp_path / "out" / "p" / "evidence.md").read_text()
    assert "**To test, with all runs:** VACO ends higher." in page and "**We saw:**" not in page
    assert (
        "Not tested: not all results of `t` and `u` are here." in page and verdict_on_page(page) == "not looked at yet"
    )
    assert "Runs of s</h2>" in (tmp_path / "out" / "p.html").read_text()
    assert "In short" not in (tmp_path / "out" / "p.md").read_text()


def test_a_table_is_in_the_page_and_deletes_no_picture(shelf: Path, tmp_path: Path) -> None:
    figure = shelf / "p" / "fig2.toml"
    figure.write_text(figure.read_text().replace("aggregate_scores", "risk_table"))
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    (tmp_path / "out" / "p").mkdir(parents=True)
    stale = [tmp_path / "out" / "p" / name for name in ("fig2.png", "fig2_narrow.png")]
    for file in stale:
        file.write_bytes(b"of a time when it was drawn")
    paper, figures = read_paper("p", shelf)
    (shown,) = load_figures(figures, tmp_path, reps=50)
    written = paper_gallery.make(paper, figures, [shown], ["fig2"], tmp_path / "out")
    assert {path.name for path in written} == {"p.md", "evidence.md", "p.html"} and all(file.exists() for file in stale)
    text = (tmp_path / "out" / "p" / "evidence.md").read_text()
    assert (
        f"<!-- {shown.source} -->" in text
        and "| algorithm | 0–1: 0 steps (K = 1) |" in text
        and "<picture>" not in text
    )
    page = (tmp_path / "out" / "p.html").read_text()
    assert '<table class="sheet">' in page and '<th scope="row">VACO</th>' in page and "PNG" not in page


def test_hostile_texts_stay_text(shelf: Path, tmp_path: Path) -> None:
    hostile = "</dd><script>alert(1)</script>"
    (shelf / "p" / "fig2.toml").write_text(
        f'title = "T"\nquestion = "{hostile}?"\nstudy = "s"\ndraw = "learning_curves"\nclaim = "{hostile}"\n'
    )
    (shelf / "s.toml").write_text(f'env = "A"\nalgorithm = ["{hostile}"]\nseeds = 1\n')
    write_run(tmp_path / "s", hostile, 0, env="A", capacity=1)
    paper, figures = read_paper("p", shelf)
    paper_gallery.make(paper, figures, load_figures(figures, tmp_path, reps=50), ["fig2"], tmp_path / "out")
    page = (tmp_path / "out" / "p.html").read_text()
    assert page.count("<script") == 1 and "<script>alert" not in page and page.count("&lt;script&gt;") >= 3


def test_a_figure_without_a_claim_has_its_own_verdict_words(shelf: Path, tmp_path: Path) -> None:
    _, (figure,) = read_paper("p", shelf)
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)

    def word(**said: str) -> str:
        entry = replace(figure, entry=replace(figure.entry, **said))  # type: ignore[arg-type]
        (shown,) = load_figures([entry], tmp_path, reps=50)
        return verdict_words(shown)

    assert word() == "not looked at yet"
    assert word(observation="It falls.") == "no claim to check"
    assert word(observation="It falls.", verdict="cannot tell") == "cannot tell"


def test_the_page_is_one_file_that_loads_nothing(shelf: Path, tmp_path: Path) -> None:
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2, phases=4)
    paper, figures = read_paper("p", shelf)
    written = paper_gallery.make(paper, figures, load_figures(figures, tmp_path, reps=50), ["fig2"], tmp_path / "out")
    page = (tmp_path / "out" / "p.html").read_text()
    assert "default-src 'none'" in page and "<img" not in page and "<link" not in page and "src=" not in page
    names = ("fig2.svg", "fig2.png", "fig2_narrow.png", "evidence.md", "p.md", "p.html")
    assert sorted(path.name for path in written) == sorted(names)
    text = (tmp_path / "out" / "p" / "evidence.md").read_text()
    for said in (
        "n = 2 seeds × 1 environment",
        "8 of 8 runs",
        "95% stratified bootstrap",
        "normalised: minmax",
        "Small scale: 4 phases",
        "runs of 2026-11-20",
        "not looked at yet",
    ):
        assert said in text, said
    assert "DRAFT" not in (tmp_path / "out" / "p" / "fig2.svg").read_text()
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in written}
    again = paper_gallery.make(paper, figures, load_figures(figures, tmp_path, reps=50), ["fig2"], tmp_path / "again")
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in again} == digests
