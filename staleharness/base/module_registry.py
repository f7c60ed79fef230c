"""Registries that the modules of a package fill when they are imported: a new entry is one new file."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from ..errors import UserError, nearest
from .plugins import Registry, note_function

T = TypeVar("T")


def module_names(package: str) -> list[str]:
    """Sorted names of the modules in a package, without sub-packages; imports none of them."""
    paths = importlib.import_module(package).__path__
    return sorted(module.name for module in pkgutil.iter_modules(paths) if not module.ispkg)


_LOADERS: dict[str, Registry[type]] = {}  # of plugin files, by kind: registries of one kind share a loader


class ModuleRegistry(Mapping[str, T], Generic[T]):
    """Entries by name, sorted. The first access imports all modules of the package, and plugins of its kind."""

    def __init__(self, package: str, noun: str, plugins: str = "") -> None:
        """plugins: kind of the plugin files, and of the entry points, that add entries; empty: none do."""
        self.package, self.plugins = package, plugins
        self.noun = noun  # an entry in words, for messages
        self._entries: dict[str, T] = {}
        self._origins: dict[str, tuple[str, str]] = {}  # by name: (file, function), or (package, "")
        self._complete = False

    def put(self, name: str, entry: T, function: Callable[..., Any] | None = None) -> None:
        """Add an entry. function: the one that it was made from, if that may be in a plugin file.

        Raises `UserError` for a name in use, with both files. Where a plugin file is executed again, for another kind
        of plugin or because it was edited, its entry is replaced."""
        origin = (self.package, "") if function is None else note_function(function)
        if name in self._entries:
            first = self._origins[name]
            if function is not None and first == origin:
                self._entries[name] = entry
                return
            claims = " and ".join(f"by {text} in {file}" if text else f"in {file}" for file, text in (first, origin))
            raise UserError(f"the {self.noun} {name!r} is claimed twice: {claims}; rename one of them")
        self._entries[name], self._origins[name] = entry, origin

    def __getitem__(self, name: str) -> T:
        """Raises `UserError` with the nearest known name."""
        if name not in self:
            raise UserError(f"{self.noun} {name!r} is unknown; {nearest(name, self)}")
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
            try:
                for name in module_names(self.package):
                    importlib.import_module(f"{self.package}.{name}")
            except BaseException:  # Ctrl-C, in a notebook that goes on
                self._complete = False
                raise
        if self.plugins:
            list(_LOADERS.setdefault(self.plugins, Registry(self.plugins, builtin=False)))
