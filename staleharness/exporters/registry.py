"""The exporters by name. One file of this folder is one exporter, and registers itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ..base.package_registry import PackageRegistry
from ..errors import UserError
from ..store.stored_run import StoredRun

Write = Callable[[Iterable[StoredRun], Path], list[Path]]  # runs into a folder; returns what was written


@dataclass(frozen=True)
class Exporter:
    name: str
    write: Write
    then: str  # what to do with the result, `{folder}` standing for where it is
    extra: str | None  # what has to be installed for it: also the name of the package to import

    def check(self) -> None:
        """Raise `UserError` where its extra is not installed."""
        if self.extra is not None and importlib.util.find_spec(self.extra) is None:
            raise UserError(
                f"export {self.name} needs the extra {self.extra}: make setup EXTRAS={self.extra}, "
                f"or pip install 'staleharness[{self.extra}]'"
            )


class Exporters(PackageRegistry[Exporter]):
    """name -> `Exporter`."""

    def register(self, name: str, then: str, extra: str | None = None) -> Callable[[Write], Write]:
        """Decorator of a function that writes runs into a folder."""

        def keep(write: Write) -> Write:
            self.put(name, Exporter(name, write, then, extra))
            return write

        return keep


EXPORTERS = Exporters("staleharness.exporters", "export")
