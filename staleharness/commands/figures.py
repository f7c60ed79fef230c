"""`staleharness figures`: the figures of a paper, from published results. Trains nothing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..errors import UserError
from .shared.arguments import SWITCH, option


@dataclass(frozen=True)
class Command:
    """Draw the figures of a paper from published results, with what it claims and what we saw. Trains nothing."""

    paper: Annotated[str, option("NAME", "vaco")] = "vaco"
    """The paper, by its folder in experiments/."""
    fig: Annotated[str | None, option("NAME", "all")] = None
    """One figure: its number in the paper, or the name of its file."""
    scale: Annotated[str, option("small|paper", "small")] = "small"
    """Which runs: those at the small scale, or at the paper's own."""
    bundles: Annotated[str, option("FOLDER", "results/reference")] = "results/reference"
    """Where the results lie, one folder per study."""
    out: Annotated[str | None, option("FOLDER", "docs/gallery; docs/gallery_paper")] = None
    """Folder for pictures and pages; each scale has its own."""
    json: Annotated[bool, SWITCH] = False
    """Print one JSON object."""


def handle(command: Command) -> int:
    from ..base.reference_results import results_path
    from ..pages.gallery import publish
    from ..store.study import check_scale_name
    from ..store.study_runs import bundle_path

    check_scale_name(command.scale)
    out = command.out or str(bundle_path(Path("docs"), "gallery", command.scale))
    bundles = results_path(command.bundles)
    if not bundles.is_dir():
        raise UserError(f"BUNDLES={command.bundles} is not a folder; give one that holds a folder per study")
    figures, page = publish(command.paper, command.fig, command.scale, str(bundles), out)
    if command.json:
        states = {s.figure.name: s.state for s in figures}
        content = {"paper": command.paper, "scale": command.scale, "figures": states, "page": str(page)}
        print(json.dumps(content))
        return 0
    words = {"drawn": "drawn", "draft": "drawn as DRAFT, runs are missing"}
    for s in figures:
        print(f"{s.figure.name}: {words.get(s.state) or f'no bundle yet: {s.rerun}'}")
    print(f"page: {page}")
    return 0
