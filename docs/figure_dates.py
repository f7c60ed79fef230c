"""Days on which the tests of each figure were written, against the day on which its runs were published, from git.

    python docs/figure_dates.py     writes experiments/test_dates.json

Of each figure with tests: `first`, the day of the first version of its file that had any; `last`, the day since which
its tests are what they are now; `runs`, the day on which its study's bundle was first committed; `before`, whether the
tests as they are now (`yes`), or earlier ones (`earlier ones`), were committed before the bundle. A file that differs
from the last commit counts as changed today. Studies with a program of their own have their tests in its `compare.py`;
their names begin with its folder's.
"""

from __future__ import annotations

import ast
import datetime
import functools
import io
import itertools
import json
import subprocess
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "experiments" / "test_dates.json"


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True).stdout


def is_complete() -> bool:
    """Return whether this is a checkout with its whole history."""
    try:
        return _git("rev-parse", "--is-shallow-repository").strip() == "false"
    except (OSError, subprocess.CalledProcessError):
        return False


def definition(text: str) -> str:
    """Tests of a figure's file, without their words; empty without tests."""
    content = tomllib.loads(text)
    words = ("says", "claim", "role", "untested")
    parts = [{k: v for k, v in part.items() if k not in words} for part in content.get("part", [])]
    parts = [part for part in parts if part]
    return json.dumps([content.get("study"), parts], sort_keys=True) if parts else ""


def program_definition(text: str) -> str:
    """Syntax tree of a program of tests, without its docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            del node.body[0]
    return ast.dump(tree)


def versions(path: Path) -> list[tuple[str, str]]:
    """Times and texts of a file, oldest first; the working copy last if it differs from the last commit."""
    name = str(path.relative_to(ROOT))
    log = [line.split() for line in _git("log", "--format=%H %aI", "--diff-filter=AM", "--", name).splitlines()]
    texts = _contents([f"{commit}:{name}" for commit, _ in log])
    found = [(time, text) for (_, time), text in zip(reversed(log), reversed(texts), strict=True)]
    if not found or found[-1][1] != path.read_text(encoding="utf-8"):
        found.append((datetime.datetime.now(datetime.UTC).isoformat(), path.read_text(encoding="utf-8")))
    return found


def _contents(names: Sequence[str]) -> list[str]:
    """Texts of `commit:path`, by one process."""
    command = ["git", "-C", str(ROOT), "cat-file", "--batch"]
    stream = io.BytesIO(
        subprocess.run(command, input="\n".join(names).encode(), capture_output=True, check=True).stdout
    )
    texts = []
    for _ in names:
        size = int(stream.readline().split()[2])
        texts.append(stream.read(size).decode())
        stream.read(1)  # the line's end
    return texts


@functools.cache
def first_commit(path: str) -> str:
    """Time of the first commit of a file, empty where it has none."""
    return (_git("log", "--reverse", "--format=%aI", "--diff-filter=A", "--", path).split() or [""])[0]


def dates_of(path: Path, study: str = "") -> dict[str, str] | None:
    """Entry of a figure, or of a study that a program makes; None without tests, or without a committed bundle."""
    text = path.read_text(encoding="utf-8")
    tests_in = program_definition if study else definition
    study = study or tomllib.loads(text)["study"]
    now = tests_in(text)
    runs = first_commit(f"results/reference/{study}/runs.parquet")
    if not now or not runs:
        return None
    tests = [(time, tests_in(version)) for time, version in versions(path)]
    first = next(time for time, definition_then in tests if definition_then)
    same = list(itertools.takewhile(lambda version: version[1] == now, reversed(tests)))
    last = same[-1][0]
    moment = datetime.datetime.fromisoformat
    before = "yes" if moment(last) < moment(runs) else "earlier ones" if moment(first) < moment(runs) else "no"
    return {"first": first[:10], "last": last[:10], "runs": runs[:10], "before": before}


def all_dates() -> dict[str, Any]:
    """Entries by `paper/figure`, or `study/compare`."""
    folder = ROOT / "experiments"
    files = [p for p in sorted(folder.glob("*/*.toml")) if p.name != "paper.toml"]
    entries = {f"{path.parent.name}/{path.stem}": dates_of(path) for path in files}
    for path in sorted(folder.glob("*/compare.py")):
        studies = sorted((ROOT / "results/reference").glob(f"{path.parent.name}*"))
        entries |= {f"{study.name}/compare": dates_of(path, study.name) for study in studies}
    return {name: entry for name, entry in entries.items() if entry}


if __name__ == "__main__":
    FILE.write_text(json.dumps(all_dates(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
