"""Registries that the modules of a package fill on import: a new entry is a new file, and nothing else is edited."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from ..errors import UserError, nearest

T = TypeVar("T")


def module_names(package: str) -> list[str]:
    """Sorted names of the modules in a package, without sub-packages; imports none of them."""
    paths = importlib.import_module(package).__path__
    return sorted(module.name for module in pkgutil.iter_modules(paths) if not module.ispkg)


class PackageRegistry(Mapping[str, T], Generic[T]):
    """Entries by name, sorted. The first access imports all modules of the package."""

    def __init__(self, package: str, what: str) -> None:
        self.package = package
        self.what = what  # an entry in words, for messages
        self._entries: dict[str, T] = {}
        self._complete = False

    def put(self, name: str, entry: T) -> None:
        """Add an entry. Raises `ValueError` for a name in use."""
        if name in self._entries:
            raise ValueError(f"two files of {self.package} register {name!r}")
        self._entries[name] = entry

    def __getitem__(self, name: str) -> T:
        """Raises `UserError` with the nearest known name."""
        if name not in self:
            raise UserError(f"{self.what} {name!r} is unknown; {nearest(name, self)}")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def _load(self) -> None:
        if not self._complete:
            self._complete = True  # first, so that a module which reads the registry on import does not recurse
            for name in module_names(self.package):
                importlib.import_module(f"{self.package}.{name}")
