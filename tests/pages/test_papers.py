"""Papers, figures and studies in experiments/: every file is read and planned, and drawn from results of its shape."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from results_helper import write_grid, write_run
from sweeping import without_report

from staleharness import cli
from staleharness.errors import UserError
from staleharness.figures import canvas, captions, comparisons, curves, drawings, over_training
from staleharness.pages import gallery, papers
from staleharness.pages.papers import read_paper
from staleharness.pages.verdict_texts import said_lines, standing, standing_on
from staleharness.running.plan import plan
from staleharness.running.precedents import Precedents
from staleharness.statistics import retained
from staleharness.statistics.claims.part import CANNOT_TELL, VOCABULARY
from staleharness.statistics.options import without_option
from staleharness.store.bundle import Bundle, options_of, read_bundle
from staleharness.store.study import SCALES, USUAL_LAG, Question, ask, plain_env, read_study
from staleharness.task import ENVS

STUDIES = sorted(papers.experiments().glob("*.toml"))
PAPERS = sorted(path.parent.name for path in papers.experiments().glob("*/paper.toml"))
FIGURES = {f"{name}/{f.name}": f for name in PAPERS for f in read_paper(name)[1]}
LANGUAGE = ("word-problems", "gsm8k")


# --- the files


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("file", STUDIES, ids=lambda path: path.stem)
def test_a_study_is_planned_and_calls_its_cells_what_the_runs_will_be_called(
    file: Path, scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        LANGUAGE
    ):  # whether model and data can be had is not asked here: they would be looked for in the network
        monkeypatch.setattr(ENVS[name], "check", classmethod(lambda cls, spec: None))
    study = read_study(file)
    if scale == "paper" and not study.paper:
        pytest.skip("this study has no scale of a paper's own")
    asked = study.at(scale)
    made = plan(replace(asked, seeds=1))  # the others are asked for in the same words
    cells = {(run.label, run.spec.capacity, plain_env(run.spec.env)) for run in made.runs}
    assert study.question
    assert cells == {(label, k, plain_env(env)) for label, k, env in asked.cells()}
    assert len(made.runs) == len(cells)


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_names_a_drawing_function_that_takes_its_options(name: str) -> None:
    entry = FIGURES[name].entry
    drawings.check_drawing(entry.draw, entry.options, name)
    assert entry.question.endswith("?")
    assert entry.claim or entry.asked
    labels = {label for label, _, _ in FIGURES[name].question.cells()}
    assert set(entry.only) <= labels
    lines = {label.partition(" N=")[0] for label in labels}  # of a figure over N
    for option in ("option", "across"):
        lines |= {without_option(label, entry.options.get(option, "")) for label in lines}
    assert set(entry.names) <= (set(entry.only) or labels | lines)


@pytest.mark.parametrize("name", FIGURES)
def test_nobody_says_what_was_seen_before_every_run_is_there(name: str) -> None:
    f = FIGURES[name]
    assert bool(f.entry.verdict or f.entry.part) <= bool(f.entry.saw)
    if f.entry.saw:
        bundle = read_bundle(ROOT / "results" / "reference" / f.entry.study, f.question, "small")
        assert bundle is not None and bundle.complete


def test_the_committed_pages_are_those_that_the_files_make_now() -> None:
    for page in (ROOT / "docs" / "gallery").glob("*.md"):
        name = page.stem
        if name == "README":
            assert page.read_text(encoding="utf-8") == gallery.index(page.parent)
            continue
        paper, figures = read_paper(name)
        text = page.read_text(encoding="utf-8")
        assert paper.about in text, f"make figures PAPER={name}"
        for f in figures:
            assert not f.entry.claim or f"**The {paper.source}:** {f.entry.claim}\n" in text
            for said in (f.heading, f.entry.question, f.entry.claim, f.entry.asked):
                assert said in text, f"{f.name}: make figures PAPER={name}"


@pytest.mark.parametrize("name", PAPERS)
def test_verdicts_and_numbers_on_a_committed_page_are_those_of_the_committed_runs(name: str) -> None:
    text = (ROOT / "docs" / "gallery" / f"{name}.md").read_text(encoding="utf-8")
    for s in gallery.show(read_paper(name)[1], ROOT / "results" / "reference"):
        said = "\n".join(said_lines(s))
        assert said in text, f"{s.figure.name}: {s.redraw}"
        assert "{" not in s.reading.saw
        assert s.reading.verdict in (VOCABULARY if s.figure.entry.part else ("", CANNOT_TELL))


def test_the_committed_pages_lead_to_pictures_and_pages_that_git_keeps() -> None:
    for page in (ROOT / "docs" / "gallery").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        links = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
        links = [one or other for one, other in links]
        there = [link.partition("#")[0] for link in links if not link.startswith("http")]
        assert there or "| --- |" in text  # a page may hold tables alone
        assert all((page.parent / link).is_file() for link in there)
        assert {Path(link).suffix for link in there} <= {".md", ".png"}


@pytest.mark.parametrize("name", sorted({f.paper for f in FIGURES.values()}))
def test_the_committed_pictures_and_tables_are_made_from_the_committed_runs(name: str) -> None:
    pictures, page = ROOT / "docs" / "gallery" / name, ROOT / "docs" / "gallery" / f"{name}.md"
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    for s in gallery.show(read_paper(name)[1], ROOT / "results" / "reference", reps=10):
        for file in (pictures / f"{s.figure.name}.png", pictures / f"{s.figure.name}_narrow.png"):
            if s.state == "no bundle" or s.figure.entry.draw in drawings.SHEETS:
                assert not file.exists()
                assert (f"<!-- {s.source} -->" in text) == (s.state != "no bundle"), s.redraw
            else:
                assert s.source.encode() in file.read_bytes(), f"{file.name}: {s.redraw}"
                assert f'="{name}/{file.name}"' in text


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """An experiments folder of one study and one figure."""
    folder = tmp_path / "experiments"
    (folder / "p").mkdir(parents=True)
    (folder / "p" / "paper.toml").write_text('title = "P"\nlink = "https://x.test"\nabout = "A."\n')
    (folder / "p" / "fig2.toml").write_text(
        'title = "T"\nquestion = "Why?"\nstudy = "s"\ndraw = "aggregate_scores"\nclaim = "C."\n'
    )
    (folder / "s.toml").write_text(
        'question = "Q?"\nenv = "A"\nalgorithm = ["ppo_clip", "vaco"]\ncapacity = [1, 4]\nseeds = 2\n'
        "[settings]\nnum_envs = 16\n[paper]\nseeds = 7\n"
    )
    return folder


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("p/fig2.toml", "clam = 'x'", "unknown option 'clam'; did you mean 'claim'?"),
        ("p/fig2.toml", "title = 'x'", "fig2.toml lacks question, study, draw, claim"),
        ("p/fig2.toml", "title = 3", "title=3 is not of type str"),
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
        figure.question.at("paper")
    assert words in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('verdict = "perhaps"', "perhaps is not one of"),
        ('verdict = "agrees"', "verdict='agrees' needs [[part]] with the tests behind it"),
        (
            'verdict = "cannot tell"\n[[part]]\nsays = "x"\nuntested = "y"',
            "it follows from the parts of the claim",
        ),
        (
            '[[part]]\nsays = "x"\nof = ["vaco"]',
            "part 'x': say of whom, and compare with over, over_k or than",
        ),
        (
            '[[part]]\nsays = "x"\nof = ["vaco"]\nthan = 1\nbe = "better"',
            "better is not one of more, less, alike",
        ),
        ('[[part]]\nsays = "x"\nof = ["vaco"]\nthan = 1\nbe = "alike"', "part 'x': alike needs a margin"),
        ('[[part]]\nsay = "x"', "unknown option 'say'; did you mean 'says'?"),
    ],
)
def test_a_verdict_is_of_a_fixed_vocabulary_and_follows_from_tests(
    shelf: Path, lines: str, words: str
) -> None:
    with (shelf / "p" / "fig2.toml").open("a") as stream:
        stream.write(lines + "\n")
    with pytest.raises(UserError, match=re.escape(words)) as error:
        read_paper("p", shelf)
    assert "fig2.toml" in str(error.value) and "\n" not in str(error.value)


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
            'saw = "It returns {return vaco K=4}, {return vaco K=4 over=ppo_clip} more; {above vaco K=4}."\n'
            '[[part]]\nsays = "VACO ends higher"\nof = ["vaco"]\nover = ["ppo_clip"]\nk = [4]\nwhat = "return"\n'
            '[[part]]\nsays = "and without lag, too"\nof = ["vaco"]\nover = ["ppo_clip"]\nk = [1]\nwhat = "return"\n'
        )
    paper, figures = read_paper("p", shelf)
    (shown,) = gallery.show(figures, tmp_path, reps=50)
    assert shown.reading.verdict == "partly" and [t.outcome for t in shown.reading.tested] == ["yes", "no"]
    assert shown.reading.saw == "It returns 62 (60, 61, 62, 63), 40 [40, 40] more; 4 of 4."
    gallery.make(paper, "p", [shown], ["fig2"], tmp_path / "out")
    page = (tmp_path / "out" / "p.md").read_text()
    assert (
        "**Verdict:** partly." in page
        and "| VACO ends higher | holds | return, VACO − PPO-clip, K = 4 |" in page
    )
    assert "40 [40, 40]" in page and "| 4 |" in page and "**We saw:** It returns 62" in page
    assert "<b>partly</b>" in (tmp_path / "out" / "p.html").read_text()
    assert standing_on(page) == "partly"


def test_a_page_calls_the_source_of_its_claims_what_it_is(shelf: Path, tmp_path: Path) -> None:
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    for written, source in (("", "paper"), ('source = "lesson"\n', "lesson")):
        with (shelf / "p" / "paper.toml").open("a") as stream:
            stream.write(written)
        paper, figures = read_paper("p", shelf)
        gallery.make(paper, "p", gallery.show(figures, tmp_path, reps=50), ["fig2"], tmp_path / "out")
        assert f"**The {source}:** C." in (tmp_path / "out" / "p.md").read_text()
        assert f"<dt>The {source}</dt><dd>C.</dd>" in (tmp_path / "out" / "p.html").read_text()


def test_runs_of_other_studies_are_named_and_those_repeated_for_them(shelf: Path, tmp_path: Path) -> None:
    held = {"s": (0, 1, 2), "t": (0, 2), "u": (1, 2)}
    for study, seeds in held.items():
        for seed in seeds:
            other = {"metrics_sha256": "0" * 64} if (study, seed) == ("u", 1) else {}
            write_run(tmp_path / study, "vaco", seed, env="A-v5", capacity=1, phases=3, said=other)
    (shelf / "s.toml").write_text('question = "Q?"\nenv = "A"\nalgorithm = ["vaco"]\nseeds = 3\n')
    (shown,) = gallery.show(read_paper("p", shelf)[1], tmp_path, reps=50)
    assert (
        " 2 of these runs (VACO; seeds 0, 2) also belong to t and u, so the results there are not independent evidence."
        " 1 run (VACO; seed 1) was repeated for u on another kind of processor or by another version of the code, with "
        "different numbers."
    ) in shown.facts


def test_what_a_text_quotes_must_be_there(shelf: Path, tmp_path: Path) -> None:
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    with (shelf / "p" / "fig2.toml").open("a") as stream:
        stream.write('saw = "{return vacco K=4}"\n')
    (shown,) = gallery.show(read_paper("p", shelf)[1], tmp_path, reps=50)
    with pytest.raises(
        UserError, match=re.escape("p/fig2.toml: {return vacco K=4}: vacco has no run at K=4")
    ):
        _ = shown.reading


def test_a_figure_without_its_study_names_the_nearest(shelf: Path) -> None:
    (shelf / "s.toml").rename(shelf / "study.toml")
    with pytest.raises(UserError, match=r"study='s' is not in .*study"):
        read_paper("p", shelf)


def test_unknown_drawings_options_and_figures_are_one_line(shelf: Path) -> None:
    for name, options, words in (
        ("agregate_scores", {}, "did you mean 'aggregate_scores'"),
        ("steps_to_threshold", {"treshold": 1}, "did you mean 'threshold'"),
        ("metric_over_training", {}, "needs the option 'metric'"),
    ):
        with pytest.raises(UserError, match=words):
            drawings.check_drawing(name, options, "x")
    _, figures = read_paper("p", shelf)
    assert papers.chosen(figures, "2") == papers.chosen(figures, "fig2") == papers.chosen(figures, None)
    assert papers.chosen(figures, "all") == papers.chosen(figures, None)
    with pytest.raises(UserError, match="FIG='9' is unknown; known: 2"):
        papers.chosen(figures, "9")


def test_the_papers_scale_replaces_what_it_names_and_all_settings(shelf: Path) -> None:
    study = read_study(shelf / "s.toml")
    assert study.at("small").settings == {"num_envs": 16} and study.at("small").seeds == 2
    paper = study.at("paper")
    assert paper.settings == {} and paper.seeds == 7 and paper.env == ("A",) and paper.capacity == (1, 4)
    assert ask(spec_file=str(shelf / "s.toml"), scale="paper") == paper
    with pytest.raises(UserError, match=r"SCALE='papr' is unknown; did you mean 'paper'"):
        study.at("papr")


# --- bundles


def bundle_of(root: Path, shelf: Path) -> Bundle:
    _, (figure,) = read_paper("p", shelf)
    found = read_bundle(root, figure.question, "small")
    assert found is not None
    return found


def test_a_bundle_is_complete_when_every_cell_has_every_seed_and_strangers_do_not_count(
    shelf: Path, tmp_path: Path
) -> None:
    root = tmp_path / "s"
    write_grid(root, ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    assert bundle_of(root, shelf).complete
    write_run(root, "spo", 0, env="A-v5", capacity=1)
    write_run(root, "vaco", 2, env="A-v5", capacity=1)
    write_run(root, "vaco", 0, env="A-v5", capacity=1, settings={"num_envs": 8})
    write_run(root, "vaco", 0, env="A-v5", capacity=1, settings={"lag": "fixed:0"})
    found = bundle_of(root, shelf)
    assert found.complete and found.strangers == 4 and len(found.runs) == 8


def test_what_stands_in_a_labels_brackets_replaces_the_studys_setting(shelf: Path, tmp_path: Path) -> None:
    label = "vaco[lag=fixed:0,num_envs=8]"
    study = shelf / "s.toml"
    study.write_text(study.read_text().replace('"ppo_clip", "vaco"', f'"vaco", "{label}"'))
    for seed in (0, 1):
        for k in (1, 4):
            write_run(tmp_path / "s", "vaco", seed, env="A-v5", capacity=k)
            settings = {"lag": "fixed:0", "num_envs": 8}
            write_run(tmp_path / "s", label, seed, env="A-v5", capacity=k, settings=settings)
    found = bundle_of(tmp_path / "s", shelf)
    assert found.complete and found.strangers == 0
    assert options_of(label) == {"lag": "fixed:0", "num_envs": 8}
    assert options_of("vaco[delta=0.1] N=4") == {"delta": 0.1} and options_of("vaco") == {}


def test_a_missing_run_makes_it_a_draft(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "s"
    runs = write_grid(root, ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    for file in runs[0].path.iterdir():
        file.unlink()
    runs[0].path.rmdir()
    paper, figures = read_paper("p", shelf)
    for room in ("pages.papers", "pages.gallery_texts"):
        monkeypatch.setattr(f"staleharness.{room}.experiments", lambda: shelf)
    (shown,) = gallery.show(figures, tmp_path, reps=50)
    assert shown.state == "draft" and shown.table is not None and shown.table.draft
    assert "7 of 8 runs" in shown.facts and shown.facts.startswith("DRAFT")
    gallery.make(paper, "p", [shown], ["fig2"], tmp_path / "out")
    assert "| [draft](p/fig2.png) |" in gallery.index(tmp_path / "out")
    write_grid(root, ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    gallery.make(paper, "p", gallery.show(figures, tmp_path, reps=50), ["fig2"], tmp_path / "out")
    assert "| [yes](p/fig2.png) |" in gallery.index(tmp_path / "out")


def test_no_bundle_is_said_and_nothing_is_drawn(shelf: Path, tmp_path: Path) -> None:
    paper, figures = read_paper("p", shelf)
    shown = gallery.show(figures, tmp_path / "nowhere")
    written = gallery.make(paper, "p", shown, ["fig2"], tmp_path / "out")
    assert {path.suffix for path in written} == {".md", ".html"}
    text = (tmp_path / "out" / "p.md").read_text()
    assert "No bundle yet: `make reproduce PAPER=p FIG=2`" in text and "![" not in text


# --- pictures and pages


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, gallery.Shown]]:
    """Every figure with results of its study's shape: one environment, two seeds of a few phases."""
    root = tmp_path_factory.mktemp("bundles")
    for study, question in {f.entry.study: f.question for f in FIGURES.values()}.items():
        write_study(root / study, question)
    with pytest.MonkeyPatch.context() as patch:
        for room in (comparisons, retained, over_training):
            patch.setattr(room, "REPS", 50)
        patch.setattr(curves, "CURVE_REPS", 50)
        shown = gallery.show(list(FIGURES.values()), root, reps=50, engine="quick")
        yield dict(zip(FIGURES, shown, strict=True))


def write_study(root: Path, question: Question) -> None:
    """Runs of the shape that a study asks for, one environment and two seeds of it, but never all of them."""
    env = question.env[0]
    kind = "language" if env in LANGUAGE else "chain" if env == "bit-chain" else "control"
    for label, k, where in question.cells():
        _, _, n = label.partition(" N=")
        settings: dict[str, Any] = {"lag": question.lag or USUAL_LAG, **question.settings}
        inside = dict(options_of(label))
        settings |= {"hyper": inside, **{key: inside[key] for key in ("horizon", "batch") if key in inside}}
        settings |= {"minibatches": int(n)} if n else {}
        complete = len(question.env) == 1 and question.seeds == 2
        seeds = 3 if question.seeds >= 5 else 1 if complete else 2
        for seed in range(seeds) if where == env else ():
            score = (
                0.5 - 0.01 * k + 0.1 * seed
                if kind != "control"
                else 900.0 - 40 * k + 100 * seed + 7 * len(label)
            )
            name = f"{env}-v5" if kind == "control" else env
            own: dict[str, Any] = {"kind": kind, "settings": settings}
            write_run(root, label, seed, env=name, capacity=k, sampled=score, phases=4, **own)


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_drawn_from_runs_of_its_studys_shape(
    name: str, every: dict[str, gallery.Shown]
) -> None:
    shown, entry = every[name], every[name].figure.entry
    assert shown.bundle is not None and shown.table is not None and shown.state == "draft"
    if entry.draw in drawings.SHEETS:
        made = drawings.sheet(entry.draw, shown.results, shown.table, **entry.options)
        assert made.lines[0].startswith("DRAFT") and made.blocks[0].rows
        say_what_they_rest_on(" ".join(made.lines).lower())
        return
    figure = drawings.draw(entry.draw, shown.results, shown.table, **entry.options)
    say_what_they_rest_on(" ".join(figure._suptitle.get_text().split()))
    assert any(text.get_text() == "DRAFT" for text in figure.texts)
    assert not any(ax.images for ax in figure.axes)  # a browser blurs their pixels


def say_what_they_rest_on(said: str) -> None:
    for words in ("small scale: 4 phases", "runs of 2026-11-20", "n = ", "interval"):
        assert words in said, said


def test_an_algorithm_has_one_colour_in_all_figures_of_a_study(every: dict[str, gallery.Shown]) -> None:
    seen: dict[tuple[str, str], set[str]] = {}
    for shown in every.values():
        assert shown.table is not None
        for label, look in captions.looks_of(shown.table).items():
            seen.setdefault((shown.figure.entry.study, label), set()).add(look.colour)
    assert all(len(colours) == 1 for colours in seen.values())


@pytest.mark.parametrize("draw", drawings.FIGURES)
def test_no_text_hangs_over_a_narrow_page(draw: str, every: dict[str, gallery.Shown]) -> None:
    for shown in every.values():
        entry = shown.figure.entry
        if entry.draw == draw and shown.bundle is not None and shown.table is not None:
            figure = drawings.draw(draw, shown.results, shown.table, canvas.COLUMN, **entry.options)
            with canvas.drawing():
                figure.draw_without_rendering()
            texts = [figure._suptitle, *(t for box in figure.legends for t in box.get_texts())]
            texts += [t for ax in figure.axes for t in (ax._left_title, ax.xaxis.label, *ax.texts)]
            for text in texts:
                box = text.get_window_extent()
                if text.get_text().strip():
                    assert box.x0 >= -1 and box.x1 <= figure.bbox.x1 + 1, text.get_text()
            return


def test_a_table_stands_in_the_page_and_leaves_no_picture(shelf: Path, tmp_path: Path) -> None:
    figure = shelf / "p" / "fig2.toml"
    figure.write_text(figure.read_text().replace("aggregate_scores", "risk_table"))
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)
    (tmp_path / "out" / "p").mkdir(parents=True)
    stale = [tmp_path / "out" / "p" / name for name in ("fig2.png", "fig2_narrow.png")]
    for file in stale:
        file.write_bytes(b"of a time when it was drawn")
    paper, figures = read_paper("p", shelf)
    (shown,) = gallery.show(figures, tmp_path, reps=50)
    written = gallery.make(paper, "p", [shown], ["fig2"], tmp_path / "out")
    assert {path.name for path in written} == {"p.md", "p.html"} and not any(file.exists() for file in stale)
    text = (tmp_path / "out" / "p.md").read_text()
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
    gallery.make(paper, "p", gallery.show(figures, tmp_path, reps=50), ["fig2"], tmp_path / "out")
    page = (tmp_path / "out" / "p.html").read_text()
    assert "<script" not in page and page.count("&lt;script&gt;") >= 3


def test_what_was_seen_of_a_figure_without_a_claim_is_told_from_what_nobody_looked_at(
    shelf: Path, tmp_path: Path
) -> None:
    _, (figure,) = read_paper("p", shelf)
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2)

    def word(**said: str) -> str:
        entry = replace(figure, entry=replace(figure.entry, **said))  # type: ignore[arg-type]
        (shown,) = gallery.show([entry], tmp_path, reps=50)
        return standing(shown)

    assert word() == "not looked at yet"
    assert word(saw="It falls.") == "no claim to check"
    assert word(saw="It falls.", verdict="cannot tell") == "cannot tell"


def test_the_page_is_one_file_that_loads_nothing(shelf: Path, tmp_path: Path) -> None:
    write_grid(tmp_path / "s", ("ppo_clip", "vaco"), envs=("A-v5",), capacities=(1, 4), seeds=2, phases=4)
    paper, figures = read_paper("p", shelf)
    written = gallery.make(paper, "p", gallery.show(figures, tmp_path, reps=50), ["fig2"], tmp_path / "out")
    page = (tmp_path / "out" / "p.html").read_text()
    assert "default-src 'none'" in page and "<img" not in page and "<link" not in page and "src=" not in page
    names = ("fig2.svg", "fig2.png", "fig2_narrow.png", "p.md", "p.html")
    assert sorted(path.name for path in written) == sorted(names)
    text = (tmp_path / "out" / "p.md").read_text()
    for said in ("n = 2 seeds × 1 environment", "8 of 8 runs", "95% stratified bootstrap", "normalised: minmax",
                 "Small scale: 4 phases", "runs of 2026-11-20", "not looked at yet"):  # fmt: skip
        assert said in text, said
    assert "DRAFT" not in (tmp_path / "out" / "p" / "fig2.svg").read_text()
    digests = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in written}
    again = gallery.make(paper, "p", gallery.show(figures, tmp_path, reps=50), ["fig2"], tmp_path / "again")
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in again} == digests


# --- the commands


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["staleharness", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return int(ended.value.code or 0)


def test_figures_come_without_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from staleharness import cli\n"
        "try: cli.main()\n"
        "except SystemExit as e: code = e.code\n"
        "assert not {'torch', 'gymnasium', 'mujoco', 'matplotlib.pyplot'} & set(sys.modules), sorted(sys.modules)\n"
        "sys.exit(code)"
    )
    words = ["figures", "--paper", "vaco", "--fig", "8", "--out", str(tmp_path / "out"), "--json"]
    write_study(tmp_path / "b" / "vaco_delta", FIGURES["vaco/fig8"].question)
    done = subprocess.run(
        [sys.executable, "-c", program, *words, "--bundles", str(tmp_path / "b")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["figures"] == {"fig8": "draft"}
    assert (tmp_path / "out" / "vaco" / "fig8.png").stat().st_size > 10_000


def test_reproduce_says_what_it_would_run_and_then_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "staleharness.running.estimate.precedents", lambda spec, store: Precedents("made up", 1, 1000.0, 0)
    )
    out = tmp_path / "out"
    assert call(monkeypatch, "reproduce", "--fig", "3", "--dry", "--json", "--out", str(out)) == 0
    (said,) = json.loads(capsys.readouterr().out)["studies"]
    assert (said["study"], said["runs"], said["done"]) == ("vaco_control", 315, 0) and said["seconds"] > 3600
    assert not out.exists()


def test_reproduce_makes_the_runs_draws_the_figure_and_runs_nothing_twice(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (shelf / "s.toml").write_text(
        'question = "Q?"\nenv = "Pendulum"\nalgorithm = ["ppo_clip", "spo"]\nseeds = 1\n[settings]\nsteps = 128\n'
        "num_envs = 2\nnum_steps = 32\nepochs = 1\nminibatches = 2\nevaluations = 2\nevaluation_episodes = 1\n"
        "final_episodes = 2\n"
    )
    for room in ("pages.papers", "pages.gallery_texts"):
        monkeypatch.setattr(f"staleharness.{room}.experiments", lambda: shelf)
    words = [
        "reproduce",
        "--paper",
        "p",
        "--fig",
        "2",
        "--jobs",
        "1",
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]
    for again in (False, True):
        with without_report():
            assert call(monkeypatch, *words) == 0
        out, err = capsys.readouterr()
        said = json.loads(out)
        assert said["figures"] == {"fig2": "drawn"} and ("2 of 2 runs to do" in err) is not again
        assert (tmp_path / "out" / "figures" / "p" / "fig2.png").stat().st_size > 10_000
    assert len(list((tmp_path / "out" / "s" / "runs").iterdir())) == 2


def test_a_run_that_two_studies_ask_for_is_made_once(
    shelf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    size = (
        "[settings]\nsteps = 64\nnum_envs = 2\nnum_steps = 32\nepochs = 1\nminibatches = 2\nevaluations = 1\n"
        "evaluation_episodes = 1\nfinal_episodes = 1\n"
    )
    for name, methods in (("s", '["ppo_clip", "spo"]'), ("t", '["spo", "vaco"]')):
        text = f'question = "Q?"\nenv = "Pendulum"\nalgorithm = {methods}\nseeds = 1\n{size}'
        (shelf / f"{name}.toml").write_text(text)
    (shelf / "p" / "fig3.toml").write_text((shelf / "p" / "fig2.toml").read_text().replace('"s"', '"t"'))
    for room in ("pages.papers", "pages.gallery_texts"):
        monkeypatch.setattr(f"staleharness.{room}.experiments", lambda: shelf)
    monkeypatch.setattr(
        "staleharness.running.estimate.precedents", lambda spec, store: Precedents("made up", 1, 1000.0, 0)
    )
    words = ["reproduce", "--paper", "p", "--jobs", "1", "--out", str(tmp_path / "out")]
    assert call(monkeypatch, *words, "--dry") == 0
    said = capsys.readouterr().out
    assert "s (small): 2 of 2 runs to do" in said and "t (small): 1 of 2 runs to do" in said
    assert "  ppo_clip: K=1 on Pendulum-v1; seed 0" in said and "  vaco: K=1 on Pendulum-v1; seed 0" in said
    with without_report():
        assert call(monkeypatch, *words) == 0
    said = capsys.readouterr().err
    assert "2 of 2 runs to do" in said
    assert "t: copied 1 run from other studies" in said and "1 of 2 runs to do" in said
    shared = {path.name for s in "st" for path in (tmp_path / "out" / s / "runs").iterdir()}
    assert len(shared) == 3
    assert call(monkeypatch, *words, "--dry") == 0
    assert "t (small): 0 of 2 runs to do" in capsys.readouterr().out


def test_a_mistake_in_the_words_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for words, said in (
        (["--paper", "vako"], "PAPER='vako' is unknown; did you mean 'vaco'?"),
        (["--fig", "99"], "FIG='99' is unknown"),
        (["--scale", "big"], "SCALE='big' is unknown; known: paper, small"),
    ):
        for command in ("figures", "reproduce"):
            assert call(monkeypatch, command, *words, "--out", str(tmp_path / "out")) == 2
            error = capsys.readouterr().err
            assert said in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
