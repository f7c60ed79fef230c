"""`make audit`: what it says, and that it never passes where nothing was looked up."""

from __future__ import annotations

import importlib.util
import subprocess
from typing import Any

import pytest
from places import ROOT

spec = importlib.util.spec_from_file_location("audit", ROOT / "constraints" / "audit.py")
assert spec is not None and spec.loader is not None
audit = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audit)

FINE = {"name": "numpy", "version": "2.4.6", "vulns": []}
BAD = {"name": "ray", "version": "2.50.0", "vulns": [{"id": "CVE-2026-27482", "fix_versions": ["2.54.0"]}]}
LOST = {"name": "torch", "skip_reason": "Dependency not found on PyPI and could not be audited"}


def test_a_known_vulnerability_is_named_with_its_remedy_and_fails() -> None:
    assert audit.judge([FINE, BAD, LOST]) == (1, ["ray 2.50.0: CVE-2026-27482, mended in 2.54.0"])


def test_a_failed_lookup_does_not_pass_for_safe() -> None:
    code, (line,) = audit.judge([FINE, LOST])
    assert code == 0 and line.startswith("1 of 2 pins") and line.endswith("not looked up: torch")
    code, (line,) = audit.judge([LOST])
    assert code == 2 and "no advisory database within reach" in line


def test_every_pin_is_looked_up_once() -> None:
    groups = audit._without_repeats(["a==1", "a==2", "b==1", "a==3"])
    assert groups == [["a==1", "b==1"], ["a==2"], ["a==3"]]
    assert sorted(pin for group in audit._without_repeats(audit.pins()) for pin in group) == audit.pins()
    assert any(pin.startswith("torch==") for pin in audit.pins())


@pytest.mark.parametrize(
    ("failing", "line"),
    [
        ("install", "pip-audit could not be installed: ERROR: No matching distribution"),
        ("pip_audit", "pip-audit gave no answer: ERROR: No matching distribution"),
    ],
)
def test_where_nothing_can_be_looked_up_one_line_says_why(
    failing: str, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        errors = "WARNING: retrying\nERROR: No matching distribution\n" if failing in command else ""
        if errors and not options.get("capture_output"):
            print(errors)  # would be on the terminal
        return subprocess.CompletedProcess(command, bool(errors), "", errors)

    monkeypatch.setattr(subprocess, "run", run)
    assert audit.main() == 2
    assert capsys.readouterr() == ("", f"{line}\n")
