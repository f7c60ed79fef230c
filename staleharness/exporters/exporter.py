"""Exporters by name, one per file of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..base.module_registry import ModuleRegistry
from ..base.system_info import package_version
from ..errors import missing_extra
from ..store.stored_run import StoredRun

Write = Callable[[Iterable[StoredRun], Path], list[Path]]  # runs into a folder; returns what was written


@dataclass(frozen=True)
class Exporter:
    """Named function that writes runs in the format of another tool."""

    name: str
    write: Write
    then: str  # next step for the user; `{folder}` stands for the folder of the export
    extra: str | None  # extra that it needs, which is also the name of its package

    def check(self) -> None:
        """Raise `UserError` if its extra is not installed."""
        if self.extra is not None and package_version(self.extra) is None:
            raise missing_extra(f"export {self.name}", self.extra)


class Exporters(ModuleRegistry[Exporter]):
    """name -> `Exporter`."""

    def register(self, name: str, then: str, extra: str | None = None) -> Callable[[Write], Write]:
        """Decorator of a function that writes runs into a folder."""

        def add(write: Write) -> Write:
            self.put(name, Exporter(name, write, then, extra), write)
            return write

        return add


EXPORTERS = Exporters("staleharness.exporters", "export", "exporters")
