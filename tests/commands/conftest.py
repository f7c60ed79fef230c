from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Cli


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, cli: Cli, tmp_path: Path, short_report: None) -> Cli:
    """The command line in an empty working folder, without plugins."""
    monkeypatch.setenv("STALEHARNESS_PLUGINS", "")
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return cli
