"""`staleharness figures`: the figures of a paper, from published results. Trains nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated

from ..errors import UserError
from .shared.arguments import Help, JsonOption

if TYPE_CHECKING:
    from ..pages.paper_figure_data import GalleryFigure


@dataclass(frozen=True)
class Command(JsonOption):
    """Draw the figures of a paper from published results, with its claims and our observations. Trains nothing."""

    paper: Annotated[str, Help("NAME", "vaco")] = "vaco"
    """The paper, by its folder in experiments/."""
    fig: Annotated[str | None, Help("NAME", "all")] = None
    """One figure: its number in the paper, or the name of its file."""
    scale: Annotated[str, Help("small|paper", "small")] = "small"
    """Scale of the runs to draw: small, or as in the paper."""
    bundles: Annotated[str, Help("FOLDER", "results/reference")] = "results/reference"
    """Folder with the results, one folder per study."""
    out: Annotated[str | None, Help("FOLDER", "docs/gallery; docs/gallery_paper")] = None
    """Folder for pictures and pages; each scale has its own."""


def handle(command: Command) -> int:
    from ..base.reference_results import results_path
    from ..pages.paper_gallery import publish
    from ..pages.verdict_text import part_text, verdict_words
    from ..store.study_runs import bundle_path
    from ..study import check_scale_name

    check_scale_name(command.scale)
    out = command.out or str(bundle_path(Path("docs"), "gallery", command.scale))
    bundles = results_path(command.bundles)
    if not bundles.is_dir():
        raise UserError(f"BUNDLES={command.bundles} is not a folder; give one that holds a folder per study")
    figures, files = publish(command.paper, command.fig, command.scale, str(bundles), out)
    *_, summary, index = files
    if command.json:
        complete = [s for s in figures if s.state == "drawn"]
        content = {
            "paper": command.paper,
            "scale": command.scale,
            "figures": {s.figure.name: s.state for s in figures},
            "verdicts": {s.figure.name: verdict_words(s) for s in complete},
            "parts": {s.figure.name: [part_text(p) for p in s.claim_result.parts] for s in complete},
            "files": list(map(str, files)),
            "page": str(summary),
        }
        print(json.dumps(content, ensure_ascii=False))
        return 0
    for s in figures:
        print("\n".join(_lines(s, files, alone=len(figures) == 1)))
    pages = [path for path in files if path.suffix == ".html" and path != index]
    print(f"page: {pages[-1] if pages else summary}")
    print(f"all figures: {index}")
    return 0


def _lines(s: GalleryFigure, files: Sequence[Path], *, alone: bool) -> list[str]:
    """Verdict on a figure and its picture; `alone`: with the parts of its claim and their numbers."""
    from ..pages.verdict_text import part_text, verdict_words

    if s.state == "no bundle":
        return [f"{s.figure.name}: no bundle yet: {s.command('reproduce')}"]
    word = "drawn as DRAFT, runs are missing" if s.state == "draft" else f"drawn; {verdict_words(s)}"
    lines = [f"{s.figure.name}: {word}"]
    if alone and s.state == "drawn":
        lines[0] += f" ({s.figure.heading})"
        texts = [part_text(part) for part in s.claim_result.parts] or [s.claim_result.observation]
        paragraphs = (wrap(text, 112, initial_indent="  ", subsequent_indent="    ") for text in texts)
        lines += [line for lines_of_part in paragraphs for line in lines_of_part]
    pictures = [path for path in files if path.stem == s.figure.name and path.suffix == ".png"]
    return [*lines, *(f"  picture: {path}" for path in pictures)]
