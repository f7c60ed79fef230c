"""Change important lines on purpose, one at a time, and see which test notices.

    python tests/mutants/run.py              all of them, some hours
    python tests/mutants/run.py -k learner   those whose file or reason holds the word
    python tests/mutants/run.py --jobs 2

The changes are in the .toml files beside this one: `file`, `before` (found exactly once in it), `after`, `why`, and the
`tests` that should notice. Each is made in a copy of the tree, and its tests run until one fails. Exits with 1 where a
change survived, where a snippet is not found exactly once, or where the tests fail on the tree as it is.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("staleharness", "algorithms", "envs", "experiments", "docs", "tests", "pyproject.toml")
LIMIT = 900  # seconds for the tests of one change


@dataclass(frozen=True)
class Mutant:
    """One change: `before` becomes `after` in `file`."""

    file: str  # relative to the root of the repository
    before: str
    after: str
    why: str  # what is wrong with it, in few words
    tests: str  # files, folders or test ids, separated by spaces

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"

    def mutant_text(self, root: Path = ROOT) -> str:
        """The changed text of the file. Raises `ValueError` where `before` is not in it exactly once."""
        file = root / self.file
        text = file.read_text() if file.is_file() else ""
        if (found := text.count(self.before)) != 1:
            raise ValueError(f"{self}: `before` is found {found} times; update its entry in tests/mutants")
        return text.replace(self.before, self.after)


def read() -> list[Mutant]:
    """All entries, in the order of the files."""
    files = sorted(Path(__file__).parent.glob("*.toml"))
    return [Mutant(**entry) for file in files for entry in tomllib.loads(file.read_text())["mutant"]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-k", default="", metavar="WORD", help="only changes whose file or reason holds it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args(arguments)
    mutants = [m for m in read() if asked.k.lower() in str(m).lower()]
    for mutant in mutants:
        try:
            mutant.mutant_text()
        except ValueError as error:
            print(error)
            return 1
    if not mutants:
        print(f"no change has {asked.k!r} in its file or reason")
        return 1
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: queue.Queue[Path] = queue.Queue()
        for job in range(asked.jobs):
            copies.put(_copy_tree(Path(folder) / str(job)))
        with concurrent.futures.ThreadPoolExecutor(asked.jobs) as pool:
            files = sorted({test for mutant in mutants for test in mutant.tests.split()})
            for found in pool.map(lambda test: _run_tests(copies, None, test), files):
                if found != SURVIVED:
                    print(f"without any change: {found}")
                    return 1
            verdicts = pool.map(lambda m: _run_tests(copies, m, m.tests), mutants)
            survived = [m for m, verdict in zip(mutants, verdicts, strict=True) if _last_line(m, verdict)]
    print(f"{len(mutants) - len(survived)} of {len(mutants)} changes are caught")
    for mutant in survived:
        print(f"  SURVIVED  {mutant}")
    return 1 if survived else 0


SURVIVED = "SURVIVED"


def _last_line(mutant: Mutant, verdict: str) -> bool:
    """Print the verdict; whether no test noticed."""
    print(f"{mutant}\n    {verdict}", flush=True)
    return not verdict.startswith("caught")


def _copy_tree(folder: Path) -> Path:
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "gallery"))
        else:
            shutil.copy(ROOT / name, folder / name)
    (folder / "results").mkdir()
    (folder / "results" / "reference").symlink_to(ROOT / "results" / "reference")
    return folder


def _run_tests(copies: queue.Queue[Path], mutant: Mutant | None, tests: str) -> str:
    """Run the tests with the change (None: without any) in one of the copies, and undo it there."""
    folder = copies.get()
    changed = None if mutant is None else folder / mutant.file
    text = "" if changed is None else changed.read_text()
    try:
        if mutant is not None and changed is not None:
            changed.write_text(mutant.mutant_text(folder))
        return _verdict(folder, tests.split())
    finally:
        if changed is not None:
            changed.write_text(text)
        copies.put(folder)


def _verdict(folder: Path, tests: list[str]) -> str:
    options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu", "--no-header", "--tb=no"]
    # no .pyc: of two changes of one size within a second, the second would not be seen
    env = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=folder,
            env=env,
            timeout=LIMIT,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        return f"no answer: its tests take more than {LIMIT} seconds"
    if done.returncode == 0:
        return SURVIVED
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode == 1 and failed:
        return f"caught by {failed[0]}"
    last = (done.stdout + done.stderr).strip().splitlines() or ["nothing said"]
    return f"no answer: pytest ended with {done.returncode}: {last[-1]}"


if __name__ == "__main__":
    sys.exit(main())
