"""Commands that write, called again once there are more runs: the files before and after the second call."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure
from results_helper import write_run
from sweeping import staleharness

from staleharness.commands.advise import MARK
from staleharness.figures import plot_layout, registry, score_retention
from staleharness.pages import paper_gallery, report
from staleharness.pages.paper_figure_data import load_figures
from staleharness.pages.paper_figure_specs import read_paper
from staleharness.statistics.aggregate import table
from staleharness.statistics.results import load

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc000000301010018dd8db0"
    "0000000049454e44ae426082"
)
PICTURES = {
    "svg": b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" width="1pt" height="1pt" viewBox="0 0 1 1"/>',
    "png": PNG,
    "pdf": b"%PDF",
}
FIGURES, FEW = ("one", "two", "three", "four"), 12
Act = Callable[[Path], object]


def blank(*what: Any, **options: Any) -> Figure:
    return Figure(figsize=(1.0, 1.0))


def picture(figure: Figure, kind: str, source: str = "", **options: Any) -> bytes:
    """Return a picture with what tells it from others': to the gallery any source, to advise its own."""
    mark = paper_gallery.SOURCE_MARK.get(kind, "") if source else ""
    mark = f"<!--{mark}-->" if kind == "svg" else mark
    return PICTURES[kind] + mark.encode() + source.encode() * source.startswith(MARK)


@pytest.fixture
def cheap_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report has two figures, of few runs two more, and no time is spent on what a picture looks like."""

    def section(name: str) -> SimpleNamespace:
        texts = SimpleNamespace(title=name, caption=name)
        return SimpleNamespace(name=name, section=texts, draw=blank)

    monkeypatch.setattr(
        registry, "sections", lambda runs: [section(name) for name in FIGURES[: 4 if len(runs) <= FEW else 2]]
    )
    monkeypatch.setattr(registry, "draw", blank)
    monkeypatch.setattr(score_retention, "draw_advice", blank)
    monkeypatch.setattr(plot_layout, "retitle", lambda *what: None)
    monkeypatch.setattr(plot_layout, "to_bytes", picture)
    monkeypatch.setattr(plot_layout, "reduce_colours", lambda png: png)


def store(root: Path, seeds: int) -> None:
    """Write results of 4 x `seeds` runs, and of `seeds` - 2 of them in a folder of their own."""
    for seed in range(seeds - 2):
        write_run(root.with_name("few"), "spo", seed, capacity=1, phases=2)
    for label in ("spo", "vaco"):
        for k, score in ((1, 900.0), (4, 300.0)):
            for seed in range(seeds):
                write_run(root, label, seed, capacity=k, sampled=score + 3 * seed, phases=2)


def command(*words: str) -> Act:
    """A command line in which `ROOT` is the folder of a test; one that is refused the disk says so in one line."""

    def act(root: Path) -> None:
        done = staleharness(*(word.replace("ROOT", str(root)) for word in words))
        if done.returncode:
            lines = done.stderr.splitlines()
            assert done.returncode == 2 and lines[-1].startswith("staleharness: "), done.stderr
            assert "No space left" in lines[-1] or "cannot be" in lines[-1], done.stderr
            raise OSError(done.stderr)

    return act


def draw_paper(root: Path) -> None:
    paper, figures = read_paper("p", root / "experiments")
    paper_gallery.make(paper, figures, load_figures(figures, root / "bundles", reps=10), ["fig2"], root / "made")


def write_report(root: Path) -> None:
    runs = load(root / "results")
    report.write(root / "results" / "reports" / "all", runs, table(runs, reps=10), [], "a command")


ACTS: dict[str, tuple[Act, str]] = {  # what is done, and the folder to which it writes
    "report": (write_report, "results"),
    "advise": (command("advise", "--results", "ROOT/results", "--out", "ROOT/made/advice.png"), "made"),
    "compare": (command("compare", "ROOT/bundle", "ROOT/results", "--out", "ROOT/made/both.csv"), "made"),
    "export": (command("export", "csv", "--out", "ROOT/results", "--to", "ROOT/made"), "made"),
    "pack": (command("pack", "ROOT/few", "ROOT/made/bundle"), "made"),
    "unpack": (command("unpack", "ROOT/bundle", "ROOT/made"), "made"),
    "figures": (draw_paper, "made"),
}


@pytest.fixture
def root(tmp_path: Path, cheap_pictures: None) -> Path:
    root = tmp_path / "root"
    store(root / "results", 3)
    (root / "made").mkdir()
    paper = root / "experiments" / "p"
    paper.mkdir(parents=True)
    (paper / "paper.toml").write_text('title = "P"\nlink = "https://x.test"\nabout = "A."\n')
    for figure, study in (("fig2", "s"), ("fig3", "t")):  # the second has no results
        (paper / f"{figure}.toml").write_text(
            f'title = "T"\nquestion = "Why?"\nstudy = "{study}"\ndraw = "aggregate_scores"\nclaim = "C."\n'
        )
        (root / "experiments" / f"{study}.toml").write_text(
            'question = "Q?"\nenv = "Hopper"\nalgorithm = ["spo", "vaco"]\ncapacity = [1, 4]\nseeds = 3\n'
        )
    return root


def visible(folder: Path) -> dict[str, bytes]:
    """Every file but hidden ones and those in hidden folders, by its path."""
    paths = {str(p.relative_to(folder)): p for p in folder.rglob("*") if p.is_file()}
    return {name: p.read_bytes() for name, p in paths.items() if not any(x[0] == "." for x in Path(name).parts)}


def renew(tmp_path: Path, root: Path, name: str) -> tuple[Path, dict[str, bytes], dict[str, bytes]]:
    """Return a folder as before a command's second call, its files then, and those after the call."""
    act, place = ACTS[name]
    for call in range(2):  # the second with more runs
        earlier = tmp_path / "earlier"
        shutil.rmtree(earlier, ignore_errors=True)
        shutil.copytree(root / "results", root / "bundles" / "s", dirs_exist_ok=True)
        if not (root / "bundle").exists():
            staleharness("pack", str(root / "few"), str(root / "bundle"))
        shutil.copytree(root, earlier)
        act(root)
        if name == "unpack":  # into an empty folder
            break
        if call == 0:
            store(root / "results", 4)
    return earlier, visible(earlier / place), visible(root / place)
