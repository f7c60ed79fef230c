"""Watch what a process deletes, cuts or replaces below a folder, and judge whether work is lost by it.

Python announces each such call before it happens (`sys.addaudithook`), so nothing of the harness is replaced; only
`truncate` of an open file is not announced, and `open` gives files that announce it. Loaded as a plugin file
(`$STALEHARNESS_PLUGINS`) it watches workers too: `$WATCHED_FOLDER` says what, `$DELETIONS` where to write.
"""

from __future__ import annotations

import builtins
import hashlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from staleharness.training import checkpoint

# Files of an attempt whose loss loses no work.
REPLACEABLE = {"lease.json", "failure.json", "manifest.json", "fingerprint.json", "job.json", ".lock"}
_watch: list[tuple[Path, Path]] = []
_open = builtins.open
DELETED = -1  # bytes that are left of a file


def watch(folder: Path, log: Path) -> None:
    """Append a line {path, event, lost} to `log` for each file below `folder` that this process deletes, cuts or
    replaces from now on. lost: why that loses work, or empty."""
    if not _watch:
        sys.addaudithook(_hook)
    _watch[:] = [(folder.resolve(), log)]
    builtins.open = io.open = _open_watched


def stop() -> None:
    _watch[:] = [(Path("/nowhere"), Path("/dev/null"))]
    builtins.open = io.open = _open


def _open_watched(file: Any, *given: Any, **options: Any) -> Any:
    """Open a file whose `truncate` is announced as `os.truncate` is."""
    stream = _open(file, *given, **options)
    cut: Callable[[int | None], int] = stream.truncate

    def truncate(size: int | None = None) -> int:
        stream.flush()
        _hook("os.truncate", (file, stream.tell() if size is None else size))
        return cut(size)

    stream.truncate = truncate
    return stream


def events(log: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.is_file() else []


def _hook(event: str, given: tuple[Any, ...]) -> None:
    if event == "os.remove" and given[1] == -1:
        _note(event, _path(given[0]), None)
    elif event == "os.rename":
        source, target = _path(given[0]), _path(given[1])
        if target.is_file():
            _note(event, target, source)
    elif event == "shutil.rmtree":
        folder = _path(given[0])
        for path in sorted(folder.rglob("*")) if folder.is_dir() and not folder.is_symlink() else []:
            if path.is_file() and not path.is_symlink():
                _note(event, path, None)
    elif event == "open" and isinstance(given[2], int) and given[2] & os.O_TRUNC and isinstance(given[0], (str, bytes)):
        _note_cut(event, _path(given[0]), 0)
    elif event == "os.truncate":
        _note_cut(event, _path(given[0]), given[1])


def _path(text: Any) -> Path:
    text = os.readlink(f"/proc/self/fd/{text}") if isinstance(text, int) else os.fsdecode(text)
    return Path(os.path.abspath(text))


def _note_cut(event: str, path: Path, left: int) -> None:
    if path.is_file() and path.stat().st_size > left:
        _note(event, path, None, left)


def _note(event: str, path: Path, source: Path | None, left: int = DELETED) -> None:
    """Write the event down, before it happens. source: of a rename, what takes the place."""
    folder, log = _watch[0]
    if path.is_relative_to(folder) and path.name[0] != ".":  # hidden files are torn ones, and locks
        line = json.dumps({"event": event, "path": str(path.relative_to(folder)), "lost": _lost(path, source, left)})
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(handle, line.encode() + b"\n")
        os.close(handle)


def _lost(path: Path, source: Path | None, left: int) -> str:
    """Return the reason why deleting the file, or cutting it, loses work; empty: it loses none."""
    if source is not None and source.name.startswith(f".{path.name}."):
        return ""  # a newer content of the same file, written whole
    if "attempts" not in path.parts:
        return "" if left == DELETED and _is_of_report(path) else "a file outside attempts"
    attempt = _attempt(path)
    root = attempt.parent.parent
    if _is_complete(attempt, root) or path.name in REPLACEABLE:
        return ""
    if path.suffix == ".pt":
        return "an intact checkpoint, the newest of its run" if _is_newest(path) else ""
    if path.suffix != ".jsonl":
        return ""
    checkpoints = sorted(filter(_is_newest, path.parent.glob("checkpoint-*.pt")))
    dependent = [p.name for p in checkpoints if checkpoint.load(p)["logs"].get(path.name, [0])[0] > left]
    return f"{path.name}, on which {dependent[0]} counts" if dependent else ""


def _is_of_report(path: Path) -> bool:
    """Tell a file that the report in its folder has written and nobody has changed since."""
    report = path.parent / "report.json"
    files = json.loads(report.read_bytes())["files"] if report.is_file() else {}
    return bool(files.get(path.name) == hashlib.sha256(path.read_bytes()).hexdigest())


def _is_newest(path: Path) -> bool:
    """Tell an intact checkpoint that has no other as new of its run and fingerprint."""
    attempt = _attempt(path)
    others = (p for p in attempt.parent.rglob("checkpoint-*.pt") if attempt.name[:12] in str(p) and p != path)
    newer = (p for p in others if p.name >= path.name and _made_with(p) == _made_with(path))
    return _intact(path) and not any(map(_intact, newer))


def _attempt(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.parent.name == "attempts")


def _is_complete(attempt: Path, root: Path) -> bool:
    """Tell a run that is published, or sealed and has only to be."""
    return (root / "runs" / attempt.name[:12] / "manifest.json").is_file() or (attempt / "manifest.json").is_file()


def _made_with(path: Path) -> bytes:
    file = path.parent / "fingerprint.json"
    return file.read_bytes() if file.is_file() else b""


def _intact(path: Path) -> bool:
    content = path.read_bytes()
    return hashlib.sha256(content[32:]).digest() == content[:32]


if "WATCHED_FOLDER" in os.environ:
    watch(Path(os.environ["WATCHED_FOLDER"]), Path(os.environ["DELETIONS"]))
