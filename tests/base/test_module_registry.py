"""Registries filled by the modules of a package."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from staleharness.base.module_registry import ModuleRegistry
from staleharness.errors import UserError


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleRegistry[str]:
    """A package of two files; the registry stands in a third."""
    package = tmp_path / "registry_of_tests"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "registry.py").write_text(
        "from staleharness.base.module_registry import ModuleRegistry\n"
        "THINGS = ModuleRegistry('registry_of_tests', 'thing')\n"
    )
    for name in ("two", "one"):
        (package / f"{name}.py").write_text(f"from .registry import THINGS\nTHINGS.put({name!r}, {name.upper()!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from registry_of_tests.registry import THINGS

    yield THINGS
    for name in [name for name in sys.modules if name.startswith("registry_of_tests")]:
        del sys.modules[name]


def test_modules_are_imported_on_first_access(things: ModuleRegistry[str]) -> None:
    assert "registry_of_tests.one" not in sys.modules
    assert dict(things) == {"one": "ONE", "two": "TWO"} and list(things) == ["one", "two"] and len(things) == 2
    assert "one" in things and "three" not in things


def test_modules_are_imported_again_after_a_stop(things: ModuleRegistry[str], tmp_path: Path) -> None:
    """Ctrl-C while the libraries of a module load, say."""
    stop = tmp_path / "stop"
    stop.touch()
    (tmp_path / "registry_of_tests" / "second.py").write_text(
        f"import pathlib\nfrom .registry import THINGS\nif pathlib.Path({str(stop)!r}).exists():\n"
        "    raise KeyboardInterrupt\nTHINGS.put('second', 'SECOND')\n"
    )
    importlib.invalidate_caches()
    with pytest.raises(KeyboardInterrupt):
        list(things)
    stop.unlink()
    assert list(things) == ["one", "second", "two"]


def test_an_unknown_name_names_the_nearest(things: ModuleRegistry[str]) -> None:
    with pytest.raises(UserError, match="thing 'oen' is unknown; did you mean 'one'"):
        things["oen"]


def test_a_name_in_use_is_refused(things: ModuleRegistry[str]) -> None:
    with pytest.raises(UserError, match=r"the thing 'one' is claimed twice: in registry_of_tests and in registry_of_t"):
        things.put("one", things["one"])
