"""The files of a paper, its figures and its studies: how they are read, and that a mistake is one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from staleharness.errors import UserError
from staleharness.figures import registry
from staleharness.pages import paper_figure_specs
from staleharness.pages.paper_figure_specs import read_paper
from staleharness.study import read_study, sweep_request


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("p/fig2.toml", "clam = 'x'", "unknown option 'clam'; did you mean 'claim'?"),
        ("p/fig2.toml", "title = 'x'", "fig2.toml lacks question, study, draw, claim"),
        ("p/fig2.toml", "title = 3", "title=3 is not a string"),
        ("p/paper.toml", "title = 'x'\nlink = 'y'", "paper.toml lacks about"),
        ("s.toml", "envs = 'x'", "unknown option 'envs'; did you mean 'env'?"),
        ("s.toml", "[paper]\nseed = 3", "[paper]: unknown option 'seed'; did you mean 'seeds'?"),
        ("s.toml", "env = 'A'\n[paper.paper]\nseeds = 3", "[paper]: unknown option 'paper'"),
    ],
)
def test_a_mistake_in_a_file_is_one_line_that_names_it(shelf: Path, file: str, text: str, words: str) -> None:
    (shelf / file).write_text(text)
    with pytest.raises(UserError) as error:
        _, (figure,) = read_paper("p", shelf)
        figure.request.at("paper")
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('verdict = "perhaps"', "perhaps is not one of"),
        ('verdict = "agrees"', "verdict='agrees' needs [[part]] with the tests behind it"),
        ('verdict = "cannot tell"\n[[part]]\nsays = "x"\nuntested = "y"', "it follows from the parts of the claim"),
        (
            '[[part]]\nsays = "x"\nof = ["vaco"]',
            "part 'x': give `of`, the method, and `over`, `over_k` or `than`, what it is compared with",
        ),
        ('[[part]]\nsays = "x"\nof = ["vaco"]\nthan = 1\nbe = "better"', "better is not one of more, less, alike"),
        ('[[part]]\nsays = "x"\nof = ["vaco"]\nthan = 1\nbe = "alike"', "part 'x': alike needs a margin"),
        ('[[part]]\nsay = "x"', "unknown option 'say'; did you mean 'says'?"),
    ],
)
def test_a_verdict_is_of_a_fixed_vocabulary_and_follows_from_tests(shelf: Path, lines: str, words: str) -> None:
    with (shelf / "p" / "fig2.toml").open("a") as stream:
        stream.write(lines + "\n")
    with pytest.raises(UserError, match=re.escape(words)) as error:
        read_paper("p", shelf)
    assert "fig2.toml" in str(error.value) and "\n" not in str(error.value)


def test_a_figure_without_its_study_names_the_nearest(shelf: Path) -> None:
    (shelf / "s.toml").rename(shelf / "study.toml")
    with pytest.raises(UserError, match=r"study='s' is not in .*study"):
        read_paper("p", shelf)


def test_a_study_that_reuses_an_unknown_one_names_the_nearest(shelf: Path) -> None:
    text = (shelf / "s.toml").read_text()
    (shelf / "s.toml").write_text(text.replace("[settings]", 'reuse = "ss"\n[settings]'))
    with pytest.raises(UserError, match=r"s\.toml: reuse='ss' is not in .*did you mean 's'"):
        read_paper("p", shelf)


def test_unknown_drawings_options_and_figures_are_one_line(shelf: Path) -> None:
    for name, options, words in (
        ("agregate_scores", {}, "did you mean 'aggregate_scores'"),
        ("steps_to_threshold", {"treshold": 1}, "did you mean 'threshold'"),
        ("metric_over_training", {}, "needs the option 'metric'"),
    ):
        with pytest.raises(UserError, match=words):
            registry.check_drawing(name, options, "x")
    _, figures = read_paper("p", shelf)
    assert (
        paper_figure_specs.select_figures(figures, "2")
        == paper_figure_specs.select_figures(figures, "fig2")
        == paper_figure_specs.select_figures(figures, None)
    )
    assert paper_figure_specs.select_figures(figures, "all") == paper_figure_specs.select_figures(figures, None)
    with pytest.raises(UserError, match="FIG='9' is unknown; known: 2"):
        paper_figure_specs.select_figures(figures, "9")


def test_the_papers_scale_replaces_what_it_names_and_all_settings(shelf: Path) -> None:
    study = read_study(shelf / "s.toml")
    assert study.at("small").settings == {"num_envs": 16} and study.at("small").seeds == 2
    paper = study.at("paper")
    assert paper.settings == {} and paper.seeds == 7 and paper.env == ("A",) and paper.capacity == (1, 4)
    assert sweep_request(spec_file=str(shelf / "s.toml"), scale="paper") == paper
    with pytest.raises(UserError, match=r"SCALE='papr' is unknown; did you mean 'paper'"):
        study.at("papr")
