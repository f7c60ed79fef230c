"""An array of tasks on disk, in the results folder, for those who run its tasks and for a sweep that comes later.

<root>/slurm/<name>/array.json      jobs, by index, and options; written before the array is submitted
<root>/slurm/<name>/id              Slurm's id of it, written after; a sweep killed in between finds it by its name
<root>/slurm/<name>/<task>.<life>   what a task tells, a line each
<root>/slurm/<name>/<task>.out      what it printed before its own log was open, and what Slurm has to say
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
from ..job import Job

PREFIX = "staleharness-"


@dataclass
class Array:
    folder: Path
    jobs: list[Job]
    options: list[str]
    id: str | None = None
    at_a_time: int = 0  # as Slurm was told last
    live: set[int] = field(default_factory=set)  # tasks that have not ended

    @classmethod
    def make(cls, root: Path, jobs: Sequence[Job], options: Sequence[str]) -> Array:
        """A new one, ready to be submitted."""
        folder = make_subfolder(root, "slurm") / f"{PREFIX}{secrets.token_hex(4)}"
        folder.mkdir()
        content = {"jobs": [asdict(job) for job in jobs], "options": [*options]}
        write_json(folder / "array.json", content)
        return cls(folder, list(jobs), list(options), live=set(range(len(jobs))))

    @classmethod
    def read(cls, folder: Path) -> Array:
        """Raises `OSError`, `ValueError`, `KeyError` or `TypeError` where there is no such array."""
        content = read_json(folder / "array.json")
        jobs = [Job(**job) for job in content["jobs"]]
        found = (folder / "id").read_text(encoding="utf-8").strip() if (folder / "id").is_file() else None
        return cls(folder, jobs, content["options"], found or None)

    @classmethod
    def all(cls, root: Path) -> Iterator[Array]:
        """Those that earlier sweeps left in a results folder; what cannot be read was never submitted. Raises
        `UserError` where the folder of arrays is a link."""
        check_not_link(root / "slurm")
        for folder in sorted((root / "slurm").glob(f"{PREFIX}*")):
            if not re.fullmatch(f"{PREFIX}[0-9a-f]{{8}}", folder.name):
                continue  # not ours: Slurm is never asked for it
            try:
                yield cls.read(folder)
            except (OSError, ValueError, KeyError, TypeError):
                shutil.rmtree(folder, ignore_errors=True)

    @property
    def name(self) -> str:
        return self.folder.name

    def submitted(self, array_id: str) -> None:
        write_bytes(self.folder / "id", array_id.encode() + b"\n")
        self.id = array_id

    def task(self, index: int) -> str:
        return f"{self.id}_{index}"

    def told(self, index: int, life: int) -> Path:
        return self.folder / f"{index}.{life}"

    def printed(self, index: int) -> str:
        """The end of what a task printed outside its run's log."""
        try:
            return (self.folder / f"{index}.out").read_text(encoding="utf-8", errors="replace")[-2000:].strip()
        except OSError:
            return ""

    def forget(self) -> None:
        """Nothing works on it, and what its tasks told was heard."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self.folder.parent.rmdir()
