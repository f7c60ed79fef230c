"""Commands that write are killed, or refused the disk, at each of their dealings with it: every file that was there is
the earlier or the new one, and the next call makes what it would have made.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from crash import every_crash
from renewals import ACTS, renew, visible
from renewals import cheap_pictures as cheap_pictures
from renewals import root as root

CASES = [  # bundles that are killed: tests/store/test_hostile_bundles.py
    (name, refusal)
    for name in ACTS
    for refusal in (None, errno.ENOSPC)
    if refusal is not None or name not in ("pack", "unpack")
]
TIDY = ("report", "pack", "unpack", "figures", "export")


def hidden(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob(".*") if p.name != ".lock"]


def age(folder: Path) -> None:
    """Make hidden files as old as those that nobody is writing."""
    for path in folder.rglob(".*"):
        if path.is_file():
            os.utime(path, (1e9, 1e9))


@pytest.mark.faults
@pytest.mark.parametrize("name, refusal", CASES, ids=lambda value: {None: "killed"}.get(value, str(value)))
def test_a_killed_command_leaves_whole_files_and_can_repeat(
    tmp_path: Path, root: Path, name: str, refusal: int | None
) -> None:
    act, place = ACTS[name]
    earlier, before, after = renew(tmp_path, root, name)
    assert after

    def prepare(n: int) -> None:
        shutil.rmtree(root)
        shutil.copytree(earlier, root)

    count = 0
    for _ in every_crash(lambda n: act(root), prepare, at_most=900, refusal=refusal):
        count += 1
        found = visible(root / place)
        for file, content in found.items():
            assert content in (before.get(file), after.get(file)), f"{file} is neither the earlier nor the new one"
        assert before.keys() & after.keys() <= found.keys()
        if refusal is not None:
            assert hidden(root / place) == []
        age(root / place)
        act(root)
        assert visible(root / place) == after
        if name in TIDY:
            assert hidden(root / place) == []
    assert count >= 4
