"""What is published with the harness: bundles below `results/reference/` of a checkout, or inside the wheel."""

from __future__ import annotations

from pathlib import Path

from ..errors import UserError, shortened
from .files import user_path
from .plugins import builtin_folder

PLACE = ("results", "reference")


def reference() -> Path:
    """Where the published bundles lie: inside the wheel, or in the checkout."""
    inside = builtin_folder("reference")
    return inside if inside.is_dir() else inside.parent.joinpath(*PLACE)


def published(text: str) -> Path:
    """A path as typed; what is named `results/reference/...` and is not here is looked for among the published
    bundles. Raises `UserError` where it cannot be a path."""
    path = user_path(text)
    if path.parts[:2] == PLACE and not path.exists():
        return reference().joinpath(*path.parts[2:])
    return path


def name_of(text: str) -> str:
    """How a file is called in the spec of a run: `results/reference/...` on every machine where it is published, and
    its absolute path where it is not. Raises `UserError` where it cannot be a path, or not stand in a spec."""
    path = published(text).absolute()
    if path.resolve().is_relative_to(home := reference().resolve()):
        return str(Path(*PLACE) / path.resolve().relative_to(home))
    if set(str(path)) & set(" ,[]"):
        raise UserError(
            f"{shortened(text)} lies in {str(path.parent)!r}: a run names the whole path, which may not have a blank, "
            "comma or bracket; move the file, or give a whole path that leads there through a link"
        )
    return str(path)
