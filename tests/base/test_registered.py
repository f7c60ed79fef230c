"""A folder whose files register by name: a new file is a new entry."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from staleharness.base.registered import Registered
from staleharness.errors import UserError


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registered[str]:
    """A package of two files; the registry stands in a third."""
    room = tmp_path / "a_shelf_of_tests"
    room.mkdir()
    (room / "__init__.py").touch()
    (room / "registry.py").write_text(
        "from staleharness.base.registered import Registered\nSHELF = Registered('a_shelf_of_tests', 'thing')\n"
    )
    for name in ("two", "one"):
        (room / f"{name}.py").write_text(f"from .registry import SHELF\nSHELF.put({name!r}, {name.upper()!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from a_shelf_of_tests.registry import SHELF

    yield SHELF
    for name in [name for name in sys.modules if name.startswith("a_shelf_of_tests")]:
        del sys.modules[name]


def test_the_files_are_imported_when_somebody_looks_and_not_before(shelf: Registered[str]) -> None:
    assert "a_shelf_of_tests.one" not in sys.modules
    assert dict(shelf) == {"one": "ONE", "two": "TWO"} and list(shelf) == ["one", "two"] and len(shelf) == 2
    assert "one" in shelf and "three" not in shelf


def test_an_unknown_name_is_one_line_with_the_nearest(shelf: Registered[str]) -> None:
    with pytest.raises(UserError, match="thing 'oen' is unknown; did you mean 'one'"):
        shelf["oen"]


def test_a_name_is_taken_once(shelf: Registered[str]) -> None:
    with pytest.raises(ValueError, match="two files of a_shelf_of_tests register 'one'"):
        shelf.put("one", shelf["one"])
