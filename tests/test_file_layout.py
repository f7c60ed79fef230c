"""Layout of source files: their length, and the formatter's say everywhere."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ("staleharness", "algorithms", "envs")
MAX_LINES = 300
SKIP = "# fmt" + ": "  # how a comment turns the formatter off


def files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def test_no_file_of_the_package_is_above_300_lines() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files(*PACKAGE)}
    assert lengths and not {path: lines for path, lines in lengths.items() if lines > MAX_LINES}


def test_the_formatter_is_never_turned_off() -> None:
    paths = files(*PACKAGE, "benchmarks", "constraints", "docs", "tests")
    assert not [path for path in paths if SKIP in path.read_text(encoding="utf-8")]
