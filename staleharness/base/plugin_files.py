"""Plugin files of a folder, which may hold several kinds, and the line of one that does not import."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from ..errors import UserError, type_and_message
from .plugin_code_hash import package

KINDS = ("algorithms", "envs", "lags", "mismatches", "decoders", "figures", "exporters")
NO_PLUGINS = ("_", ".", "test_", "conftest.")  # beginnings of the names of other *.py files
HARNESS = Path(__file__).resolve().parents[1]
STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])


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
