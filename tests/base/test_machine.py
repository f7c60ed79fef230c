"""What is said of this machine and of the code that runs on it."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from places import ROOT

from staleharness.base.machine import commit


@pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists(), reason="not in a git checkout"
)
def test_the_commit_is_that_of_the_checkout() -> None:
    words = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    head = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    assert commit() in (head, f"{head}+")
