"""Figures of papers: question, study, drawing, the paper's claim, and our observation.

experiments/<study>.toml            a study: a grid of runs (`study.SweepRequest`)
experiments/<paper>/paper.toml      a paper: title, link, what it is about (`Paper`)
experiments/<paper>/<figure>.toml   a figure of it (`FigureSpec`); fig3.toml is Figure 3
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from ..base.parsing import read_toml
from ..base.plugins import builtin_folder
from ..base.typed_values import build
from ..errors import UserError, nearest
from ..statistics.claims.claim_schema import CANNOT_TELL, ClaimPart
from ..study import SweepRequest, read_study

Verdict = Literal["", "agrees", "partly", "disagrees", "cannot tell"]  # `claim.VOCABULARY`


@dataclass(frozen=True)
class Paper:
    """Paper with a gallery page."""

    title: str
    link: str
    about: str  # a few sentences, in our words
    source: str = "paper"  # what the claims are from, as the page calls it: The paper, The lesson
    conclusion: str = ""  # what our runs say of it, in a few sentences, numbers in braces
    conclusion_from: str = ""  # the figure whose study the braces read where they name none


@dataclass(frozen=True)
class FigureSpec:
    """One figure, as its file describes it; the fields are the keys of the file."""

    title: str
    question: str
    study: str  # whose runs: experiments/<study>.toml, results/reference/<study>/
    draw: str  # name of the drawing function
    claim: str  # what the paper shows and says, in our words; empty where the figure is ours
    motivation: str = ""  # who asked for it, where no paper shows it
    observation: str = ""  # its numbers are in braces (`claim_evaluation.py`); empty: not looked at yet
    part: tuple[ClaimPart, ...] = ()  # the claim, part by part; the verdict follows from their tests
    verdict: Verdict = ""  # stated only where runs cannot test the claim at all
    beside: tuple[str, ...] = ()  # other studies whose runs the drawing shows, too
    only: tuple[str, ...] = ()  # algorithms shown, as the study names them; empty: all
    ordered: str = ""  # the option whose values the algorithms are: in order, light to dark
    names: Mapping[str, str] = field(default_factory=dict)  # what the figure calls an algorithm, by its label
    normalise: str = "auto"  # as the kind of task is usually reported
    score: str = "auto"
    options: Mapping[str, Any] = field(default_factory=dict)  # of the drawing function

    def __post_init__(self) -> None:
        if self.verdict and self.part:
            raise UserError(f"verdict={self.verdict!r}: it follows from the parts of the claim; leave it out")
        if self.verdict not in ("", CANNOT_TELL):
            raise UserError(f"verdict={self.verdict!r} needs [[part]] with the tests behind it")


@dataclass(frozen=True)
class PaperFigure:
    """A figure with its place: its paper, its name, its study."""

    paper: str  # folder
    name: str  # file, without .toml
    entry: FigureSpec
    request: SweepRequest  # of the study, at the small scale; `at` gives the paper's

    @property
    def number(self) -> str:
        """`3` of fig3, `5b` of fig5b; empty where the figure is not one of the paper's own."""
        match = re.fullmatch(r"fig(\d+[a-z]?)", self.name)
        return match[1] if match else ""

    @property
    def heading(self) -> str:
        return f"Figure {self.number}: {self.entry.title}" if self.number else self.entry.title


def experiments() -> Path:
    """Folder of studies and figures: in the checkout, or inside the wheel."""
    return builtin_folder("experiments")


def paper_names(folder: Path | None = None) -> list[str]:
    """Names of the papers that have figures, sorted."""
    return sorted(path.parent.name for path in (folder or experiments()).glob("*/paper.toml"))


def read_paper(name: str, folder: Path | None = None) -> tuple[Paper, list[PaperFigure]]:
    """Read a paper and its figures, those with a number first. Raises `UserError` naming file, key and remedy."""
    root = folder or experiments()
    if name not in (names := paper_names(root)):
        raise UserError(f"PAPER={name!r} is unknown; {nearest(name, names)}")
    path = root / name / "paper.toml"
    paper = build_from(Paper, path)
    figures = []
    for file in sorted({*(root / name).glob("*.toml")} - {path}):
        entry = build_from(FigureSpec, file)
        figures.append(PaperFigure(name, file.stem, entry, _study(root, entry.study, file)))
    return paper, sorted(figures, key=lambda f: (not f.number, int(re.sub(r"\D", "", f.number) or 0), f.name))


def build_from(kind: type[Any], file: Path) -> Any:
    """Read a file as a `Paper` or a `FigureSpec`. Raises `UserError` for missing and for unknown keys."""
    content = read_toml(file)
    try:
        return build(kind, content, f"spec file {file}")
    except TypeError:
        keys = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
        absent = [key for key in keys if key not in content]
        raise UserError(f"spec file {file} lacks {', '.join(absent)}") from None
    except UserError as error:
        raise UserError(str(error) if str(file) in str(error) else f"spec file {file}: {error}") from None


def _study(root: Path, name: str, asked_by: Path) -> SweepRequest:
    names = [path.stem for path in root.glob("*.toml")]
    if name not in names:
        raise UserError(f"spec file {asked_by}: study={name!r} is not in {root}; {nearest(name, names)}")
    request = read_study(root / f"{name}.toml")
    for other in request.reuse:
        if other not in names:
            raise UserError(f"spec file {root / name}.toml: reuse={other!r} is not in {root}; {nearest(other, names)}")
    return request


def select_figures(figures: Sequence[PaperFigure], selector: str | None) -> list[PaperFigure]:
    """Return the figure called `3`, `fig3` or `components`; all figures for None or `all`. Raises `UserError`."""
    if selector in (None, "all"):
        return list(figures)
    matches = [f for f in figures if selector in (f.name, f.number)]
    if not matches:
        names = [f.number or f.name for f in figures]
        raise UserError(f"FIG={selector!r} is unknown; " + nearest(selector, names) if names else "FIG: there is none")
    return matches
