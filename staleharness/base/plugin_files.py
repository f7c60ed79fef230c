"""Files and folders of plugins: those that the user names, in an environment variable that worker processes read, too;
the plugin files of a folder, which may hold several kinds; and the line of one that does not import."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from ..errors import UserError, type_and_message
from .parsing import user_path
from .plugin_code_hash import package

KINDS = ("algorithms", "envs", "lags", "mismatches", "decoders", "figures", "exporters")
NO_PLUGINS = ("_", ".", "test_", "conftest.")  # beginnings of the names of other *.py files
HARNESS = Path(__file__).resolve().parents[1]
STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])
PATH_VARIABLE = "STALEHARNESS_PLUGINS"
_additions: set[str] = set()  # paths that `add_user_path` added
_failures: set[str] = set()  # paths with a plugin that could not be loaded


class _SourceLoader(SourceFileLoader):
    """Loader that reads no bytecode, which can be of an earlier version: Python compares size and second of an edit."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def execute(module: ModuleType, loader: Loader, path: Path) -> None:
    """Execute a plugin file; a user's, which may have been edited a moment ago, is read from its source."""
    is_ours = package(path) or path.is_relative_to(HARNESS)
    (loader if is_ours else _SourceLoader(module.__name__, str(path))).exec_module(module)


def user_paths() -> list[Path]:
    """Files and folders named by `$STALEHARNESS_PLUGINS`, in order."""
    return [_existing(entry, PATH_VARIABLE) for entry in _entries()]


def add_user_path(path: str) -> None:
    """Add a file or folder to `$STALEHARNESS_PLUGINS`, so that worker processes see it too."""
    absolute = str(_existing(path, "--plugin").resolve())
    if os.pathsep in absolute:
        raise UserError(f"plugin path {absolute} has a {os.pathsep!r} in it, which separates paths; rename it")
    if absolute not in _entries():
        os.environ[PATH_VARIABLE] = os.pathsep.join([*_entries(), absolute])
        _additions.add(absolute)


@contextmanager
def note_failure(path: Path) -> Iterator[None]:
    """Note that the plugins of a path could not be loaded, where the block raises."""
    try:
        yield
    except UserError:
        _failures.add(str(path))
        raise


def drop_failures() -> None:
    """Take paths that were added but could not be loaded, or are gone, from `$STALEHARNESS_PLUGINS`, so that a mistake
    in one call of a notebook does not end the next ones."""
    failures = {path for path in _additions if path in _failures or not Path(path).exists()}
    if failures:
        os.environ[PATH_VARIABLE] = os.pathsep.join(entry for entry in _entries() if entry not in failures)
    _additions.difference_update(failures)
    _failures.clear()


def _entries() -> list[str]:
    return [entry for entry in os.environ.get(PATH_VARIABLE, "").split(os.pathsep) if entry]


def _existing(text: str, where: str) -> Path:
    """Path of a *.py file, or of a folder with at least one plugin file. Raises `UserError` for any other."""
    path = user_path(text)
    if not path.exists():
        raise UserError(f"plugin path {text} does not exist (from {where})")
    if not path.is_dir() and not (path.is_file() and path.suffix == ".py"):  # a device or a pipe has no plugin either
        kinds = "a readable file ending in .py or a folder"
        raise UserError(f"plugin path {text} (from {where}) is not a plugin; give {kinds}")
    check_plugin_folder(path, f"plugin folder {text}", where)
    return path


def plugin_files(path: Path, kind: str) -> list[Path]:
    """Plugin files of `kind` at `path`: the file itself, or the sorted *.py files of a folder.

    A folder may hold several kinds, each in a sub-folder of that name; files beside those are then no plugins, nor are
    files whose name starts with `_`, `.` or `test_`. A single file is loaded for every kind and registers its own.
    """
    if path.is_file():
        return [path]
    return _direct_files(path / kind if _kind_folders(path) else path)


def check_plugin_folder(path: Path, name: str, where: str) -> None:
    """Raise `UserError` for a folder without plugin files. name: the folder in words; where: what names it."""
    if not path.is_dir() or any(plugin_files(path, kind) for kind in KINDS):
        return
    folders, files = _kind_folders(path), _direct_files(path)
    if folders and files:
        raise UserError(
            f"{name} holds no plugin: *.py files beside its folder {folders[0]}/ are not loaded; move "
            f"{files[0].name} to {'/, '.join(KINDS[:-1])}/ or {KINDS[-1]}/ (from {where})"
        )
    raise UserError(f"{name} holds no plugin, as it has no *.py file (from {where})")


def _kind_folders(path: Path) -> list[str]:
    return [kind for kind in KINDS if (path / kind).is_dir()]


def _direct_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.py") if not file.name.startswith(NO_PLUGINS))


def import_problem(error: BaseException) -> str:
    """Return the type and message of an error and the innermost line of the user's own files that led to it, else the
    outermost of a package's: `ValueError: no (my_idea.py, line 17)`. A syntax error names its line itself."""
    frames = [(Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    frames = [(path, line) for path, line in frames if path.is_absolute() and not path.is_relative_to(HARNESS)]
    user_places = [
        (path, line) for path, line in frames if not (package(path) or path.is_relative_to(STANDARD_LIBRARY))
    ]
    of_packages = [(path, line) for path, line in frames if package(path)]
    places = [*user_places[-1:], *of_packages[:1]]
    text = type_and_message(error)
    if isinstance(error, SyntaxError) or not places:
        return text
    return f"{text} ({places[0][0].name}, line {places[0][1]})"
