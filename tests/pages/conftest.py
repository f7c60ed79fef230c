"""Shared by the tests of pages."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiments folder of one study and one figure, in place of the package's own."""
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
    monkeypatch.setattr("staleharness.pages.paper_figure_specs.experiments", lambda: folder)
    return folder
