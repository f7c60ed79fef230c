"""A record of tests skipped for want of an extra, so that they can be run once it is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from needs import HINT


class SkipRecord:
    """Writes the ids of tests (or of whole files) skipped for want of an extra, one a line, when a session ends.

    pytest reads the file as arguments: `make test ARGS=@.pytest_cache/d/skipped/for_want_of_an_extra`.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.ids: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and HINT in str(report.longrepr):
            self.ids.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self.file.write_text("".join(f"{test}\n" for test in sorted(self.ids)), encoding="utf-8")
