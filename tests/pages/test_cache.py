"""A report and a table that are kept are made anew when any file that they are made with changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from results_helper import write_grid

from staleharness.pages import report
from staleharness.statistics import aggregate
from staleharness.statistics.results import Results

PACKAGE = Path(report.__file__).parents[1]


@pytest.fixture
def package_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copy of the package that is watched for changes; code runs from its own place."""
    copy = tmp_path / "package"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for module in (aggregate, report):
        monkeypatch.setattr(module, "MAKERS", [copy / maker.name for maker in module.MAKERS])
    return copy


def edit(file: Path) -> None:
    file.write_text(file.read_text() + "\n")


@pytest.mark.parametrize(
    ("file", "table", "page"),
    [
        ("figures/plot_marks.py", False, True),
        ("figures/curves_and_summary.py", False, True),
        ("figures/a_new_one.py", False, True),
        ("pages/templates/page.css", False, True),
        ("statistics/normalisation.json", True, True),
        ("statistics/bootstrap.py", True, True),
        ("store/run_grid.py", True, True),
        ("base/text_formatting.py", True, True),
        ("running/sweep_event_loop.py", False, False),
    ],
)
def test_a_changed_file_expires_only_its_products(
    package_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, table: bool, page: bool
) -> None:
    results = Results.of(write_grid(tmp_path / "out", ("spo",), seeds=2, phases=2))
    made: list[str] = []
    real = aggregate.table
    monkeypatch.setattr(aggregate, "table", lambda *a, **o: made.append("table") or real(*a, **o))
    monkeypatch.setattr(report, "_page", lambda *a: made.append("page") or [b"<html>"])
    monkeypatch.setattr("staleharness.figures.registry.sections", lambda results: [])

    def ask() -> list[str]:
        made.clear()
        folder = tmp_path / "reports"
        found = aggregate.cached_table(folder, results.grid, reps=50, engine="quick")
        report.write(folder, results, found)
        return list(made)

    assert ask() == ["table", "page"]
    assert ask() == []
    target = package_copy / file
    if not target.exists():
        target.touch()
    edit(target)
    assert ask() == ["table"] * table + ["page"] * page
    assert ask() == []


def test_a_report_watches_every_package_that_draws_it() -> None:
    """Packages imported by those of the list are in the list, or files at the top."""
    import re

    for module in report.MAKERS:
        for file in module.rglob("*.py"):
            for name in re.findall(r"^\s*from \.\.(\w+)", file.read_text(), re.M):
                assert PACKAGE / name in report.MAKERS or not (PACKAGE / name).is_dir(), f"{file}: {name}"
