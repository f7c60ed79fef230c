"""Drawing into a folder that holds something: nothing is lost that was not drawn again."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Cli
from results_helper import write_grid

from staleharness.pages import paper_gallery
from staleharness.pages.paper_figure_data import load_figures
from staleharness.pages.paper_figure_specs import read_paper

Figures = Callable[..., tuple[int, str, str]]

SECOND = 'title = "U"\nquestion = "How?"\nstudy = "t"\ndraw = "{}"\nclaim = "D."\n'


@pytest.fixture
def figures(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli) -> Figures:
    """The command `figures` for a paper with two figures of two studies, both with results in `both/`, the first one
    in `one/` and none in `none/`."""
    (shelf / "p" / "fig3.toml").write_text(SECOND.format("aggregate_scores"))
    (shelf / "t.toml").write_text((shelf / "s.toml").read_text())
    monkeypatch.chdir(tmp_path)
    for folder in ("both/s", "both/t", "one/s"):
        write_grid(tmp_path / folder, ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    (tmp_path / "none").mkdir()

    def run(*words: str) -> tuple[int, str, str]:
        return cli("figures", "--paper", "p", *words)

    return run


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_where_no_figure_has_results_nothing_is_touched(figures: Figures, tmp_path: Path) -> None:
    assert figures("--bundles", "both")[0] == 0
    before = content(tmp_path)
    assert "docs/gallery/p/fig3.png" in before
    for words in (
        ("--bundles", "both", "--scale", "paper"),
        ("--bundles", "both", "--scale", "paper", "--out", "docs/gallery"),
        ("--bundles", "none"),
        ("--bundles", "none", "--out", "new"),
        ("--bundles", "one", "--fig", "3"),
    ):
        code, out, err = figures(*words)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert "results at SCALE=" in err and "make reproduce PAPER=p" in err
        assert content(tmp_path) == before and not (tmp_path / "new").exists()
    assert err.startswith("staleharness: PAPER=p: FIG=3 does not have results at SCALE=small in one;")


@pytest.mark.parametrize("draw", ["aggregate_scores", "risk_table"])
@pytest.mark.long
def test_a_figure_without_results_stays_as_it_was_drawn(
    figures: Figures, shelf: Path, tmp_path: Path, draw: str
) -> None:
    (shelf / "p" / "fig3.toml").write_text(SECOND.format(draw))
    assert figures("--bundles", "both", "--out", "out")[0] == 0
    before = content(tmp_path / "out")
    (shelf / "p" / "fig2.toml").write_text((shelf / "p" / "fig2.toml").read_text().replace('"Why?"', '"Wherefore?"'))
    code, out, _ = figures("--bundles", "one", "--out", "out")
    assert code == 0 and out.startswith("fig2: drawn; not looked at yet\n")
    assert "\nfig3: no bundle yet: make reproduce PAPER=p FIG=3\n" in out
    after = content(tmp_path / "out")
    assert b"Wherefore?" in after.pop("index.html") and b"Why?" in before.pop("index.html")
    page, earlier = after.pop("p/evidence.md"), before.pop("p/evidence.md")
    assert after == before
    first, second = page.split(b"## Figure 3: ")
    assert second == earlier.split(b"## Figure 3: ")[1] and b"*Wherefore?*" in first


def test_a_new_folder_says_which_figures_are_missing(figures: Figures, tmp_path: Path) -> None:
    assert figures("--bundles", "one", "--out", "out")[0] == 0
    page = (tmp_path / "out" / "p" / "evidence.md").read_text()
    assert "No bundle yet: `make reproduce PAPER=p FIG=3`" in page and '"fig2.png"' in page
    assert (tmp_path / "out" / "p.html").is_file()


@pytest.mark.long
def test_the_scale_of_the_paper_has_a_gallery_of_its_own(figures: Figures, tmp_path: Path) -> None:
    assert figures("--bundles", "both")[0] == 0
    before = content(tmp_path / "docs" / "gallery")
    write_grid(tmp_path / "both/s_paper", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=7)
    code, out, _ = figures("--bundles", "both", "--scale", "paper")
    assert code == 0 and "fig3: no bundle yet: make reproduce PAPER=p FIG=3 SCALE=paper" in out
    assert content(tmp_path / "docs" / "gallery") == before
    assert "paper scale" in (tmp_path / "docs" / "gallery_paper" / "p" / "evidence.md").read_text().lower()


@pytest.mark.parametrize("name", ["README.md", "p.md", "p/evidence.md", "index.html", "p.html"])
def test_a_page_of_somebody_else_is_not_replaced(figures: Figures, tmp_path: Path, name: str) -> None:
    (tmp_path / "mine" / name).parent.mkdir(parents=True)
    (tmp_path / "mine" / name).write_text("# My thesis\n")
    code, _, err = figures("--bundles", "both", "--out", "mine")
    assert (
        code == 2
        and f"mine/{name} is not a page of this gallery and would be overwritten" in err
        and err.count("\n") == 1
    )
    assert content(tmp_path / "mine") == {name: b"# My thesis\n"}


@pytest.mark.parametrize("name", ["fig3.png", "fig3_narrow.png", "fig3.svg"])
def test_a_picture_of_somebody_else_is_not_replaced(figures: Figures, tmp_path: Path, name: str) -> None:
    (tmp_path / "mine" / "p").mkdir(parents=True)
    (tmp_path / "mine" / "p" / name).write_text("mine\n")
    code, _, err = figures("--bundles", "both", "--out", "mine", "--fig", "3")
    assert code == 2 and err.count("\n") == 1
    assert f"mine/p/{name} is not a picture of this gallery and would be overwritten" in err
    assert content(tmp_path / "mine") == {f"p/{name}": b"mine\n"}


def test_figures_that_are_not_drawn_yet_are_said_to_be_so(figures: Figures, tmp_path: Path) -> None:
    for fig, word in (("3", "not drawn"), ("2", "[yes](p/fig2.png)"), ("3", "[yes](p/fig2.png)")):
        assert figures("--bundles", "both", "--out", "out", "--fig", fig)[0] == 0
        index, page = ((tmp_path / "out" / file).read_text() for file in ("README.md", "p/evidence.md"))
        assert f"| Figure 2: T | `s` | {word} |" in index and "| [yes](p/fig3.png) |" in index
        assert all((tmp_path / "out" / "p" / file).is_file() for file in re.findall(r'"(\w+\.png)"', page))
        assert page.count("\nNot drawn yet.\n") == (word == "not drawn")


@pytest.mark.usefixtures("figures")
def test_drawing_one_figure_leaves_the_sections_of_the_others(shelf: Path, tmp_path: Path) -> None:
    paper, known = read_paper("p", shelf)
    first, second = known
    for figure, headings in ((second, [second]), (first, [first, second])):
        shown = load_figures([figure], tmp_path / "both", reps=50)
        written = paper_gallery.make(paper, known, shown, [figure.name], tmp_path / "new")
        page = (tmp_path / "new" / "p" / "evidence.md").read_text()
        assert re.findall("\n## (.*)", page) == [f.heading for f in headings]
        # one HTML file cannot hold a picture that was drawn before
        assert (tmp_path / "new" / "p.html" in written) == (figure is second)
