"""Built-in methods replaced by edited copies of their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from staleharness.algorithm import ALGORITHMS
from staleharness.base.plugins import builtin_folder


def edit_method(name: str, folder: Path, patch: pytest.MonkeyPatch, *changes: tuple[str, str]) -> None:
    """Register a copy of `algorithms/<name>.py`, written to `folder`, in place of the method. Each change is a text
    that occurs once, and what replaces it."""
    assert name in ALGORITHMS
    text = (builtin_folder("algorithms") / f"{name}.py").read_text()
    for before, after in changes:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    file = folder / f"{name}_{len(list(folder.iterdir()))}.py"
    file.write_text(text)
    patch.delitem(ALGORITHMS._classes, name)
    ALGORITHMS.load_file(file)
