"""Checks on a results folder before anything is written to it or read from it."""

from __future__ import annotations

import json
import os
from pathlib import Path

from ..base.files import check_creatable, check_not_link, read_json
from ..base.reference_results import PLACE, absent_results, bundle_places, reference_folder, results_path
from ..errors import UserError, nearest
from .bundle_reader import CONTENT, RUNS, is_packed
from .locks_and_leases import MARKER
from .record_schema import FORMAT, is_id

SWEEP_FOLDERS = ("runs", "attempts", "damaged", "reports", "slurm", ".lock")  # files and folders that a sweep writes in
BROWSER_FILES = frozenset((".DS_Store", "Thumbs.db", "desktop.ini"))  # which file browsers leave behind

MARKER_TEXT = json.dumps({"format": FORMAT})  # minimal content of a marker


def check_writable(root: Path) -> None:
    """Raise `UserError` if results cannot be written to the folder. Writes nothing."""
    try:
        _check(root)
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise UserError(f"OUT={root} cannot be used: {getattr(error, 'strerror', error)}") from error


def check_apart(folder: Path, name: str) -> None:
    """Raise `UserError` for a folder among the runs of other results, where it would count as a damaged one; `name`: as
    the user typed it."""
    if place := _place_inside(folder):
        text = f"lies inside the {place.name} of the results in {place.parent}"
        raise UserError(f"{name} {text}; give another folder")


def _place_inside(folder: Path) -> Path | None:
    """Return the folder `runs` or `attempts` of results that a folder is, or lies in; None outside of results."""
    for path in (folder.absolute(), folder.resolve()):
        for parent in (path, *path.parents):
            if parent.name in ("runs", "attempts") and (parent.parent / MARKER).is_file():
                return parent
    return None


def _check(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise UserError(f"OUT={root} is a file; give a folder for results")
    check_apart(root, f"OUT={root}")
    if is_packed(root):
        raise UserError(
            f"OUT={root} holds packed results, to which nothing can be added; "
            f"`staleharness unpack {root} FOLDER` makes a folder that a sweep can add to"
        )
    if problem := _missing_marker(root):
        raise UserError(f"OUT={root} {problem}")
    if root.is_dir() and not (root / MARKER).is_file() and not _only_ours(root):
        raise UserError(f"OUT={root} holds something other than staleharness results; give a new or empty folder")
    if (root / MARKER).is_file():
        check_format(root)
    for name in SWEEP_FOLDERS:
        check_not_link(root / name)
    root = root.resolve()  # a link may point to a folder that does not exist yet
    existing = next(p for p in (root, *root.parents) if p.exists())
    if not existing.is_dir():
        raise UserError(f"OUT={root} cannot be created: {existing} is a file")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"OUT={root} cannot be written: no permission in {existing}")
    check_creatable(root, f".{MARKER}.")


def check_readable(root: Path, name: str) -> None:
    """Raise `UserError` unless this is a folder of results; the message suggests one. `name`: as the user typed it."""
    if not (root / MARKER).is_file():
        if problem := _missing_marker(root):
            raise UserError(f"{name} {problem}")
        if inside := [path.name for path in folders_of_results(root)]:
            raise UserError(f"{name} holds no results itself; these folders in it do: {', '.join(inside)}")
        if root.is_dir() and (place := _place_inside(root)):
            raise UserError(f"{name} is only a part of the results in {place.parent}; give that folder")
        missing = "holds no results yet" if root.is_dir() else "is not a folder of results"
        hint = f"`staleharness sweep` makes some, and {'/'.join(PLACE)} has published ones"
        if not root.exists() and (results_path(str(root)) / MARKER).is_file():
            missing = "is published, but not in this folder"
            hint = f"`staleharness unpack {root} FOLDER` makes a folder of its runs"
        elif root.parent.resolve() == reference_folder().resolve():
            hint = absent_results() or nearest(root.name, [path.name for path in folders_of_results(root.parent)])
        elif root.parts[:2] == PLACE and (text := absent_results()):
            hint = text
        raise UserError(f"{name} {missing}; {hint}")
    check_format(root, name)


def _missing_marker(root: Path) -> str:
    """Describe the problem of a folder that holds runs but no marker; empty otherwise."""
    if os.path.lexists(root / MARKER):
        return ""
    runs = is_packed(root) or any(is_id(record.parent.name) for record in root.glob("runs/*/run.json"))
    return f"holds runs, but no {MARKER}; if they are of this version, write {MARKER_TEXT} into that file" * runs


def folders_of_results(folder: Path) -> list[Path]:
    """List the folders of results in a folder, one per name, wherever its bundles are (`bundle_places`), except hidden
    ones: `pack` fills one, and leaves it behind if killed."""
    markers = (m for place in reversed(bundle_places(folder)) for m in place.glob(f"[!.]*/{MARKER}"))
    by_name = {marker.parent.name: marker.parent for marker in markers}
    return [by_name[name] for name in sorted(by_name)]


def check_format(root: Path, name: str = "") -> None:
    """Raise `UserError` if the folder has another format than this version's, or is a bundle without its runs. `name`:
    as the user typed it, by default as OUT."""
    try:
        marker = read_json(root / MARKER)
        content = marker["format"]
    except OSError as error:
        raise UserError(f"{root / MARKER} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"{root / MARKER}, which says of what format the results are, is damaged ({type(error).__name__}); "
            f"if they are of this version, write {MARKER_TEXT} into it"
        ) from None
    if content != FORMAT:
        raise UserError(f"{name or f'OUT={root}'} is of format {content!r}, but this version reads format {FORMAT}")
    if marker.get("holds") == CONTENT and not is_packed(root):
        raise UserError(f"the packed results in {root} are damaged: {RUNS} is missing; get them again")


def is_empty(folder: Path) -> bool:
    """Return whether a folder holds nothing but what file browsers leave behind. Raises `OSError`."""
    return not _content(folder)


def _content(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name not in BROWSER_FILES]


def _only_ours(root: Path) -> bool:
    """Return whether the folder holds nothing but our files. A fresh checkout's `results/` holds the published
    bundles, the output of `reproduce` and a README; other folders of results may be in it (OUT=results/mine)."""
    partial = {p.name for p in root.glob(f".{MARKER}.*")}  # of a sweep that was killed while it wrote the marker
    names = {"reference", "reproduced", "README.md", ".gitkeep", *partial}
    return all(p.name in names or _is_ours(p) for p in _content(root))


def _is_ours(path: Path) -> bool:
    """Return whether this is a benchmark's page, a results folder, or a folder that holds only these at any depth."""
    if not path.is_dir():
        return path.name == f"{path.parent.name}.html"
    if path.is_symlink() or (path / MARKER).is_file():
        return (path / MARKER).is_file()
    content = _content(path)
    return bool(content) and all(map(_is_ours, content))
