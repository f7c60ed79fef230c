"""Job array of Slurm: its files in the results folder.

<root>/slurm/<name>/array.json      jobs, by index, and options; written before the array is submitted
<root>/slurm/<name>/id              Slurm's id of it, written after; a sweep killed in between finds it by its name
<root>/slurm/<name>/<task>.<start>  messages of a task, one per line; `start` counts its requeues
<root>/slurm/<name>/<task>.out      output before its run's log was open, and messages of Slurm

Nodes read them, and so does a later sweep, which continues the arrays of an earlier one.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ...base.files import check_not_link, make_subfolder, read_json, write_bytes, write_json
from ..runner_interface import Job

PREFIX = "staleharness-"


@dataclass
class JobArray:
    """Slurm job array and the tasks of it that are alive."""

    folder: Path
    jobs: list[Job]
    options: list[str]
    id: str | None = None
    at_a_time: int = 0  # limit that Slurm has
    live: set[int] = field(default_factory=set)  # tasks that have not ended

    @classmethod
    def make(cls, root: Path, jobs: Sequence[Job], options: Sequence[str]) -> JobArray:
        """Write a new array, ready to be submitted."""
        folder = make_subfolder(root, "slurm") / f"{PREFIX}{secrets.token_hex(4)}"
        folder.mkdir()
        content = {"jobs": [asdict(job) for job in jobs], "options": [*options]}
        write_json(folder / "array.json", content)
        return cls(folder, list(jobs), list(options), live=set(range(len(jobs))))

    @classmethod
    def read(cls, folder: Path) -> JobArray:
        """Read an array. Raises `OSError`, `ValueError`, `KeyError` or `TypeError` if there is none."""
        content = read_json(folder / "array.json")
        jobs = [Job(**job) for job in content["jobs"]]
        array_id = (folder / "id").read_text(encoding="utf-8").strip() if (folder / "id").is_file() else None
        return cls(folder, jobs, content["options"], array_id or None)

    @classmethod
    def read_all(cls, root: Path) -> Iterator[JobArray]:
        """Yield the arrays that earlier sweeps left in a results folder; one that cannot be read and has no id was
        never submitted, and is forgotten. Raises `UserError` if the folder of arrays is a link."""
        check_not_link(root / "slurm")
        for folder in sorted((root / "slurm").glob(f"{PREFIX}*")):
            if not re.fullmatch(f"{PREFIX}[0-9a-f]{{8}}", folder.name):
                continue  # not ours: Slurm is never asked for it
            try:
                yield cls.read(folder)
            except (OSError, ValueError, KeyError, TypeError):
                if not (folder / "id").exists():  # otherwise its tasks may need it
                    shutil.rmtree(folder, ignore_errors=True)

    @property
    def name(self) -> str:
        return self.folder.name

    def set_id(self, array_id: str) -> None:
        write_bytes(self.folder / "id", array_id.encode() + b"\n")
        self.id = array_id

    def task(self, index: int) -> str:
        return f"{self.id}_{index}"

    def messages(self, index: int, start: int) -> Path:
        """Return the file for the messages of a task since its last requeue."""
        return self.folder / f"{index}.{start}"

    def output(self, index: int) -> str:
        """Return the end of a task's output outside its run's log."""
        try:
            return (self.folder / f"{index}.out").read_text(encoding="utf-8", errors="replace")[-2000:].strip()
        except OSError:
            return ""

    def forget(self) -> None:
        """Remove the folder: no task is alive, and all messages are read."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()
