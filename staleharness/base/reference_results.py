"""Published results: bundles below `results/reference/` of a checkout, or inside the wheel."""

from __future__ import annotations

from pathlib import Path

from ..errors import UserError, shorten
from .parsing import user_path
from .plugins import builtin_folder

PLACE = ("results", "reference")


def reference_folder() -> Path:
    """Folder of the published bundles: inside the wheel, or in the checkout."""
    inside = builtin_folder("reference")
    return inside if inside.is_dir() else inside.parent.joinpath(*PLACE)


def bundle_places(folder: Path) -> list[Path]:
    """List the folders that together hold the bundles of a folder, the one whose bundles win first: published ones are
    in the working folder, and beside the program."""
    working = Path(*PLACE)
    if folder.resolve() == builtin_folder("reference").resolve():
        folder = working.absolute()
    return [folder, reference_folder()] if folder.resolve() == working.resolve() else [folder]


def absent_results() -> str:
    """Return a hint on where to get other published bundles, for an installation from a wheel, which has only some;
    empty in a checkout, which has all."""
    inside = builtin_folder("reference")
    if not inside.is_dir():
        return ""
    names = ", ".join(sorted(path.name for path in inside.iterdir() if path.is_dir()))
    return (
        f"this installation has only the published runs of {names}; copy others from a checkout of the repository to "
        f"{'/'.join(PLACE)}/ here"
    )


def results_path(text: str) -> Path:
    """Path of results as typed. `results/reference/...` falls back to the published bundles where the working folder
    has no such path. Raises `UserError` for text that cannot be a path."""
    path = user_path(text)
    if path.parts[:2] == PLACE and not path.exists():
        return reference_folder().joinpath(*path.parts[2:])
    return path


def portable_name(text: str) -> str:
    """Name of a file in the spec of a run: `results/reference/...` for a published file, on every machine; otherwise
    the absolute path. Raises `UserError` for a folder, and for text that cannot be a path or part of a spec."""
    path = results_path(text).absolute()
    if path.is_dir():
        raise UserError(f"{shorten(text)} is a folder; give a file")
    if path.resolve().is_relative_to(home := reference_folder().resolve()):
        return str(Path(*PLACE) / path.resolve().relative_to(home))
    if set(str(path)) & set(" ,[]"):
        raise UserError(
            f"{shorten(text)} lies in {str(path.parent)!r}: a run stores the absolute path, which may not have a "
            "space, comma or bracket; move the file, or give an absolute path that leads there through a link"
        )
    return str(path)
