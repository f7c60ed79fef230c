"""The index of the gallery leads to every figure, to the leaderboard and to the methods."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from browser import CHROMIUM, Page
from command_line import Cli
from pressing import press
from results_helper import write_run

from staleharness.pages.gallery_index import index_page
from staleharness.pages.page_parts import prose
from staleharness.pages.paper_figure_specs import read_paper
from staleharness.pages.verdict_text import NO_CLAIM, UNSEEN
from staleharness.statistics.claims.claim_schema import VOCABULARY

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def text() -> str:
    """Index of the committed gallery."""
    return index_page(ROOT / "docs" / "gallery")


def test_every_figure_has_its_verdict_and_links_that_lead_somewhere(text: str) -> None:
    page = Page(text)
    folder = ROOT / "docs" / "gallery"
    links = [a["href"] or "" for t, a in page.elements if t == "a"]
    ids = {a["id"] for _, a in page.elements if "id" in a}
    for link in links:
        path, _, mark = link.partition("#")
        assert (folder / path).is_file() if path else mark in ids, link
    assert {"../leaderboard.html", "../methods/vaco.md", "real_lag/README.md"} <= set(links)
    rows = [a for t, a in page.elements if t == "span" and "data-word" in a]
    papers = [path.parent.name for path in (ROOT / "experiments").glob("*/paper.toml")]
    assert len(rows) == sum(len(read_paper(name)[1]) for name in papers)
    assert {a["data-word"] for a in rows} <= {*VOCABULARY, NO_CLAIM, UNSEEN}
    assert "At the paper's ratios VACO's lead" in page.text and "the map of methods" in page.text


def test_the_command_says_verdict_numbers_picture_and_page(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    for seed in range(4):
        for label, score in (("ppo_clip", 20.0), ("vaco", 60.0)):
            for k in (1, 4):
                write_run(tmp_path / "b" / "s", label, seed, env="A-v5", capacity=k, sampled=score + seed, phases=3)
    study = shelf / "s.toml"
    study.write_text(study.read_text().replace("seeds = 2", "seeds = 4"))
    with (shelf / "p" / "fig2.toml").open("a") as stream:
        stream.write(
            'observation = "It does."\n[[part]]\nsays = "VACO ends higher"\nof = ["vaco"]\nover = ["ppo_clip"]\n'
        )
        stream.write('k = [4]\nwhat = "return"\n')
    (shelf / "p" / "fig3.toml").write_text(
        'title = "U"\nquestion = "How?"\nstudy = "s"\ndraw = "learning_curves"\nclaim = "D."\n'
    )
    monkeypatch.chdir(tmp_path)
    words = ("figures", "--paper", "p", "--fig", "2", "--bundles", "b", "--out", "out")
    code, out, _ = cli(*words)
    assert code == 0 and out.splitlines() == [
        "fig2: drawn; agrees (Figure 2: T)",
        "  holds: VACO ends higher (40 [38, 42], n = 4)",
        "  picture: out/p/fig2.png",
        "page: out/p_fig2.html",
        "all figures: out/index.html",
    ]
    assert (
        Page((tmp_path / "out" / "p_fig2.html").read_text()).text.count("VACO ends higher") == 2
    )  # as the finding, and with its test
    evidence = (tmp_path / "out" / "p" / "evidence.md").read_text()
    assert "## Figure 2: T\n\n**Holds: VACO ends higher (40 [38, 42], n = 4).**\n\n*Why?*\n" in evidence
    _, out, _ = cli(*words, "--json")
    said = json.loads(out)
    assert said["verdicts"] == {"fig2": "agrees"} and said["page"] == "out/p.md"
    assert said["parts"] == {"fig2": ["holds: VACO ends higher (40 [38, 42], n = 4)"]}


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: the index is not measured")
@pytest.mark.parametrize("width", [400, 1600])
def test_the_index_is_no_wider_than_the_window(text: str, tmp_path: Path, width: int) -> None:
    assert press(text, tmp_path, "return document.documentElement.scrollWidth;", width) <= width


@pytest.mark.parametrize(
    ("text", "folder", "html"),
    [
        ("Rows of [pipelines](../pipeline.md#caps).", "", 'Rows of <a href="../pipeline.md#caps">pipelines</a>.'),
        ("[all](../../budgets.md)", "stress", '<a href="../budgets.md">all</a>'),
        ("`a.py` finds <b> & [0.1, 0.2] (n = 5)", "", "<code>a.py</code> finds &lt;b&gt; &amp; [0.1, 0.2] (n = 5)"),
        ("[x](javascript:alert(1))", "", "[x](javascript:alert(1))"),
    ],
)
def test_prose_of_a_page_keeps_links_and_code_and_escapes_the_rest(text: str, folder: str, html: str) -> None:
    assert prose(text, folder) == html
