"""Errors of a file that is imported, with the line that raised them."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

from ..errors import type_and_message
from .plugin_code_hash import package

HARNESS = Path(__file__).resolve().parents[1]
STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])


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
