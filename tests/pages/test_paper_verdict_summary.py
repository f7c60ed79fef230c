"""Summary of a paper: its conclusion, the verdict on each claim, and lines that stay where runs are absent."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from results_helper import write_run

from staleharness.errors import UserError
from staleharness.pages import paper_gallery
from staleharness.pages.paper_figure_data import load_figures
from staleharness.pages.paper_figure_specs import read_paper
from staleharness.pages.paper_verdict_summary import conclusion
from staleharness.pages.verdict_text import verdict_on_page
from staleharness.store.store import Store

PARTS = """observation = "Seen."
[[part]]
says = "VACO ends higher"
of = ["vaco"]
over = ["ppo_clip"]
k = [4]
what = "return"
[[part]]
says = "and without lag, too"
of = ["vaco"]
over = ["ppo_clip"]
k = [1]
what = "return"
[[part]]
says = "which is ours"
of = ["vaco"]
than = 0.0
k = [4]
what = "return"
role = "ours"
"""


@pytest.fixture
def paper(shelf: Path, tmp_path: Path) -> Path:
    """A folder of results in which VACO returns 62 and PPO-clip 22 at K = 4, and both 101.5 without lag."""
    for seed in range(4):
        for k, scores in ((1, (100.0, 100.0)), (4, (20.1 - seed % 2 / 5, 60.0))):
            for label, score in zip(("ppo_clip", "vaco"), scores, strict=True):
                write_run(tmp_path / "s", label, seed, env="A-v5", capacity=k, sampled=score + seed, phases=3)
    (shelf / "s.toml").write_text((shelf / "s.toml").read_text().replace("seeds = 2", "seeds = 4"))
    with (shelf / "p" / "fig2.toml").open("a") as stream:
        stream.write(PARTS)
    (shelf / "p" / "fig3.toml").write_text(
        'title = "U"\nquestion = "How?"\nstudy = "s"\ndraw = "aggregate_scores"\n'
        'claim = ""\nmotivation = "Us."\nobservation = "S."\n'
    )
    with (shelf / "p" / "paper.toml").open("a") as stream:
        stream.write('conclusion = "VACO returns {return vaco K=4 over=ppo_clip} more."\nconclusion_from = "fig2"\n')
    return shelf


def make(root: Path, bundles: Path) -> str:
    found, figures = read_paper("p", root)
    names = [f.name for f in figures]
    paper_gallery.make(found, figures, load_figures(figures, bundles, reps=50), names, bundles / "out")
    return (bundles / "out" / "p.md").read_text()


def test_a_summary_has_conclusion_picture_and_verdicts(paper: Path, tmp_path: Path) -> None:
    page = make(paper, tmp_path)
    assert page.count("\n**In short:** VACO returns 40 [38, 42] more.\n") == 1
    assert '<img src="p/fig2.png"' in page
    rows = [line for line in page.splitlines() if line.startswith("| [")]
    assert rows == [
        "| [Figure 2: T](p/evidence.md#figure-2-t) | partly | 1 of 2 hold; "
        "open: and without lag, too (the same computation without lag) |"
    ]
    assert "without a claim to check: [Figure 3: U](p/evidence.md#figure-3-u).\n" in page
    assert "VACO returns 40 [38, 42] more." in paper_gallery.index(tmp_path / "out")


def test_numbers_of_the_page_lead_to_single_runs(paper: Path, tmp_path: Path) -> None:
    make(paper, tmp_path)
    page = (tmp_path / "out" / "p.html").read_text()
    links, ids = set(re.findall(r'href="#([^"]+)"', page)), re.findall(r' id="([^"]+)"', page)
    assert {"runs-s", "runs-s-vaco-4"} <= links <= set(ids) and len(ids) == len(set(ids))
    assert re.search(r'<td data-head="n"><a href="#runs-s-vaco-4">4</a></td>', page)
    row = page.partition('id="runs-s-vaco-4"')[2].partition("</tr>")[0]
    assert re.findall(r'run (\w{12})"><small>(\d):</small> (\d+)', row) == [
        (run.id, str(run.seed), f"{60 + run.seed}")
        for run in Store(tmp_path / "s").read_all()
        if "vaco" in run.label and run.record["spec"]["capacity"] == 4
    ]
    assert page.count('<span id="run-s-') == 16
    finding = "Holds: VACO ends higher (40 [38, 42], n = 4). 1 of 2 parts of the claim holds."
    assert re.findall(r'<p class="finding">(.*?)</p>', page) == [finding]


def test_lines_of_figures_without_results_stay(paper: Path, tmp_path: Path) -> None:
    page = make(paper, tmp_path)
    (tmp_path / "none").mkdir()
    found, figures = read_paper("p", paper)
    empty = load_figures(figures, tmp_path / "none")
    paper_gallery.make(found, figures, empty, [], tmp_path / "out")
    assert (tmp_path / "out" / "p.md").read_text() == page


def test_a_conclusion_tells_sides_after_holms_correction(paper: Path, tmp_path: Path) -> None:
    """PPO-KL and SPO return 2.4 and 2.5 more than PPO-clip, p = .033 and .028: one alone is above it, two are not."""
    for label, more in (("ppo_kl", 2.4), ("spo", 2.5)):
        for seed in range(4):
            for k, score in ((1, 100.0), (4, 20.1 - seed % 2 / 5 + more)):
                write_run(tmp_path / "s", label, seed, env="A-v5", capacity=k, sampled=score + seed, phases=3)
    study = paper / "s.toml"
    study.write_text(study.read_text().replace('"vaco"]', '"vaco", "ppo_kl", "spo"]'))
    found, figures = read_paper("p", paper)
    entries = load_figures(figures, tmp_path, reps=50)
    one, other = (f"{{told {label} K=4 over=ppo_clip of=return}} it" for label in ("ppo_kl", "spo"))
    texts = [conclusion(replace(found, conclusion=text), "p", entries) for text in (one, f"{one}, {other}")]
    assert texts == ["above it", "not significantly different from it, not significantly different from it"]
    two = [part for part in entries[0].claim_result.parts if part.part.role == "claim"]
    assert len(two) == 2 and len(entries[0].claim_result.tests) == 2  # those of the figure count, too


def test_a_conclusion_that_cannot_be_filled_is_one_line(paper: Path, tmp_path: Path) -> None:
    file = paper / "p" / "paper.toml"
    file.write_text(file.read_text().replace("return vaco", "return vacco"))
    with pytest.raises(UserError, match=r"^p/paper\.toml: \{return vacco K=4 over=ppo_clip\}: no environment has"):
        make(paper, tmp_path)


def test_each_of_several_claims_has_its_own_verdict(paper: Path, tmp_path: Path) -> None:
    file = paper / "p" / "fig2.toml"
    text = file.read_text().replace('says = "VACO ends', 'claim = "A"\nsays = "VACO ends')
    file.write_text(text.replace('says = "and without', 'claim = "B"\nsays = "and without'))
    claims = "A: agrees (1 of 1 hold), B: cannot tell (0 of 1 hold)"
    row = f"| partly | {claims}; 1 of 2 hold; open: B: and without lag, too (the same computation without lag) |"
    assert row in make(paper, tmp_path)
    evidence = (tmp_path / "out" / "p" / "evidence.md").read_text()
    assert f"**Verdict:** partly. {claims}.\n" in evidence and "| A: VACO ends higher | holds |" in evidence
    assert verdict_on_page(evidence) == "partly" and claims in (tmp_path / "out" / "p.html").read_text()
