"""Removal of the temporary files of killed writers beside one that is still writing."""

from __future__ import annotations

from pathlib import Path

import pytest

from staleharness.base.files import remove_temporaries


def test_a_temporary_renamed_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, stale = tmp_path / ".table.csv.abcdefgh", tmp_path / ".table.csv.stalefil"
    temporary.write_text("new")
    stale.write_text("")

    def finish_write(path: Path) -> bool:
        """Rename the file, as the other process may do between two checks of it."""
        if path == temporary:
            path.rename(tmp_path / "table.csv")
        return False

    monkeypatch.setattr(Path, "is_symlink", finish_write)
    remove_temporaries(tmp_path, "*.csv", age=0.0)
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]
