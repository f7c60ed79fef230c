"""Plugin discovery: one file is one plugin, and nothing else has to be edited.

Files are found in four places of equal rank: the built-in folder (`algorithms/` or `envs/` of a checkout,
`staleharness/_builtin/...` in a wheel; of lag models `staleharness/lags/`), the files and folders of
`$STALEHARNESS_PLUGINS` (separated like `$PATH`), files passed with `--plugin`, and the entry points of installed
packages in the groups `staleharness.algorithms`, `.envs`, `.lags`, `.mismatches`, `.decoders`, `.figures` and
`.exporters`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import re
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from ..errors import UserError, nearest, shorten
from .console_log import LOGGER
from .files import stamp
from .plugin_code_hash import code_files, code_hash
from .plugin_files import KINDS, PATH_VARIABLE, execute, import_problem, note_failure, plugin_files, user_paths
from .torch_modes import modes_kept

T = TypeVar("T", bound=type)
Stamps = dict[Path, tuple[str, int, int, int]]

OWN_FILE = "write it to one of its own (in a notebook %%writefile my_idea.py) and give plugin='my_idea.py'"
PREFIX = "staleharness_"  # of the modules that plugin files are executed as
_registered: set[type] = set()  # classes of any kind
_files_with_entries: set[Path] = set()  # plugin files that registered something else: a gymnasium id, a figure
_registries: weakref.WeakSet[Registry[Any]] = weakref.WeakSet()


class Registry(Generic[T]):
    """Named plugin classes of one kind (`algorithms`, `envs` or `lags`), loaded on first use."""

    def __init__(self, kind: str, base: type | None = None, builtin: bool = True) -> None:
        """base: class that every plugin of the kind extends; its `check_class`, if any, is called once per plugin.
        builtin: whether the kind has a built-in folder of plugin files."""
        self.kind, self.base, self.builtin = kind, base, builtin
        self._checked_types: set[type] = set()
        self._classes: dict[str, T] = {}
        self._loaded_files: dict[Path, Stamps] = {}
        self._broken: list[str] = []  # a line on each plugin of a package that does not import
        self._complete: str | None = None  # the value of the path variable for which all is loaded
        _registries.add(self)

    def register(self, name: str) -> Callable[[T], T]:
        """Class decorator: register under `name`. A second class of that name is an error naming both files.

        A file with plugins of several kinds is executed once for each kind; the repeated class gives the first one.
        """
        if not (isinstance(name, str) and re.fullmatch(r"[\w.-]+", name)):
            raise UserError(f"the name {name!r} in {self.kind} cannot be typed; use letters, digits, _, - and .")

        def claim(cls: T) -> T:
            if not isinstance(cls, type):
                raise UserError(f"the name {name!r} in {self.kind} is given to a {type(cls).__name__}, not to a class")
            source_file(cls)
            other = self._classes.get(name)
            if other is not None and (source_file(other), other.__qualname__) != (source_file(cls), cls.__qualname__):
                raise UserError(
                    f"the name {name!r} in {self.kind} is claimed twice: by {other.__qualname__} in "
                    f"{source_file(other)} and by {cls.__qualname__} in {source_file(cls)}; rename one of them"
                )
            in_file = cls.__module__.startswith(PREFIX)  # executed once under this name, unlike a notebook's cell
            if in_file and other is not None and other is not cls and other.__module__ == cls.__module__:
                raise UserError(f"plugin {source_file(cls)} has two classes {name!r} of {self.kind}; rename one")
            cls.name = name  # type: ignore[attr-defined]
            _registered.add(cls)
            self._classes.setdefault(name, cls)
            return self._classes[name]

        return claim

    def __iter__(self) -> Iterator[str]:
        self._load_all()
        return iter(sorted(self._classes))

    @property
    def broken(self) -> list[str]:
        """Lines on the plugins of installed packages that do not import."""
        self._load_all()
        return list(self._broken)

    def __contains__(self, name: str) -> bool:
        return name in set(self)

    def __getitem__(self, name: str) -> T:
        """Class registered as `name`. Raises `UserError` with the nearest known name, and for a class of another
        kind."""
        self._load_all()
        if name not in self._classes:
            hints = "; ".join([nearest(name, self._classes), *self.broken])
            raise UserError(f"no {re.sub(r'(?<=ch)es$|s$', '', self.kind)} is called {shorten(name)!r}; {hints}")
        cls = self._classes[name]
        if cls not in self._checked_types:
            self._check(cls)
            self._checked_types.add(cls)
        return cls

    def _check(self, cls: type) -> None:
        where = f"plugin {source_file(cls)}: {cls.__qualname__}"
        if self.base is not None and not issubclass(cls, self.base):
            raise UserError(
                f"{where} does not extend {self.base.__name__}; write class {cls.__name__}({self.base.__name__})"
            )
        check: Callable[[str], None] = getattr(cls, "check_class", lambda where: None)
        check(where)

    def _holds_plugin(self, path: Path) -> bool:
        """Return whether an executed file, or a module that it imports, has registered a class or an environment."""
        names = vars(sys.modules.get(self._module(path), object)).values()
        modules = {self._module(path), *(x.__name__.partition(".")[0] for x in names if isinstance(x, ModuleType))}
        return any(isinstance(x, type) and x in _registered for x in names) or bool(
            path.resolve() in _files_with_entries or modules & _plugin_modules()
        )

    def _module(self, path: Path) -> str:
        """Flat private module name of a plugin file."""
        path = path.resolve()
        return f"{PREFIX}{self.kind}_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"

    def load_file(self, path: Path) -> None:
        """Execute one plugin file (once per file)."""
        if (path := path.resolve()) in self._loaded_files:
            return
        spec = importlib.util.spec_from_file_location(module_name := self._module(path), path)
        if spec is None or spec.loader is None:
            raise UserError(f"plugin {path} cannot be loaded: a plugin is a readable file ending in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module  # dataclasses look their module up while the file is executing
        self._loaded_files[path] = self._stamps(path)  # now: a file that asks the registry is not executed in itself
        environments = _environments()
        try:
            with contextlib.redirect_stdout(sys.stderr), modes_kept(f"plugin {path}"):  # scripts read standard output
                execute(module, spec.loader, path)
        except BaseException as error:
            self._loaded_files.pop(path, None)  # so that the next access executes it again
            _forget(sys.modules.pop(module_name).__name__)
            if isinstance(error, UserError) or not isinstance(error, (Exception, SystemExit)):
                raise
            raise UserError(f"plugin {path} does not import: {import_problem(error)}") from error
        if _environments() != environments:
            _files_with_entries.add(path)

    def _load_entry_point(self, point: importlib.metadata.EntryPoint) -> None:
        """Import the plugin of an installed package. One that does not import is logged and skipped."""
        try:
            with contextlib.redirect_stdout(sys.stderr), modes_kept("it"):
                point.load()
        except (Exception, SystemExit) as error:
            _forget(point.module)
            package = f" of the package {point.dist.name}" if point.dist else ""
            reason = import_problem(error).removeprefix("UserError: ")
            line = f"plugin {point.name} ({point.value}){package} does not import: {reason}"
            LOGGER.warning("%s", line)
            self._broken.append(line)

    def _load_path(self, folder: Path) -> None:
        for path in plugin_files(folder, self.kind):
            self.load_file(path)
        if folder.is_file() and not self._holds_plugin(folder):
            raise UserError(f"plugin {folder} registers nothing; `staleharness new` writes one to start from")

    def forget_changed_files(self) -> None:
        """Forget what files registered that were edited or deleted since they were executed, as in a notebook."""
        for path, before in list(self._loaded_files.items()):
            if self._stamps(path) != before:
                del self._loaded_files[path]
                self._complete = None
                _forget(self._module(path))
                imports = {str(file) for file in before if file != path}
                for name in [name for name, m in sys.modules.items() if getattr(m, "__file__", None) in imports]:
                    del sys.modules[name]

    def _stamps(self, path: Path) -> Stamps:
        """Return the stamps of a plugin's file and of the user's files that it imports; none if one is gone."""
        is_ours = self.builtin and path.parent == builtin_folder(self.kind).resolve()  # imports the package alone
        with contextlib.suppress(OSError):
            return {file: stamp(file) for file in ([path] if is_ours else code_files(path))}
        return {}

    def _load_all(self) -> None:
        paths = os.environ.get(PATH_VARIABLE, "")
        if self._complete == paths:
            return
        self._broken.clear()
        self._complete = paths  # set first: a plugin that asks the registry while loading must not recurse
        try:
            builtin = [builtin_folder(self.kind)] if self.builtin else []
            for folder in (*builtin, *user_paths()):
                with note_failure(folder):
                    self._load_path(folder)
            for point in entry_points()[self.kind]:
                self._load_entry_point(point)
        except BaseException:
            self._complete = None
            raise


def _environments() -> dict[str, object]:
    """Return gymnasium's registry, id -> specification; empty where gymnasium has not been imported."""
    return dict(getattr(sys.modules.get("gymnasium"), "registry", {}))


def _plugin_modules() -> set[str]:
    """Return the modules of registered classes, and the top-level ones of environments, without gymnasium itself."""
    points = [getattr(spec, "entry_point", None) for spec in _environments().values()]
    places = (str(x if isinstance(x, str) else getattr(x, "__module__", "")) for x in points)
    environments = {place.partition(":")[0].partition(".")[0] for place in places} - {"gymnasium", ""}
    return {cls.__module__ for cls in _registered} | environments


def forget_changed_files() -> None:
    """Forget the plugins of files that were edited or deleted; the next access executes them again."""
    for registry in list(_registries):
        registry.forget_changed_files()


def _forget(module: str) -> None:
    """Drop the classes registered by a module that did not import."""
    for registry in _registries:
        for name in [name for name, cls in registry._classes.items() if cls.__module__ == module]:
            del registry._classes[name]


def entry_points() -> dict[str, list[importlib.metadata.EntryPoint]]:
    """Plugins of installed packages, by kind. The search takes longer than loading the built-in plugins."""
    return _entry_points(tuple(sys.path))


@functools.cache
def _entry_points(path: tuple[str, ...]) -> dict[str, list[importlib.metadata.EntryPoint]]:
    points = importlib.metadata.entry_points()
    return {kind: sorted(points.select(group=f"staleharness.{kind}"), key=str) for kind in KINDS}


def note_function(function: Callable[..., Any]) -> tuple[str, str]:
    """Record that a function's file has registered it; return (file, name), which identifies the function."""
    file = Path(inspect.getsourcefile(function) or "").resolve()
    _files_with_entries.add(file)
    return str(file), function.__qualname__


def builtin_folder(kind: str) -> Path:
    """Folder of the built-in plugins of `kind`: inside the package, or beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = [folder for folder in (package / "_builtin" / kind, package / kind) if folder.is_dir()]
    return inside[0] if inside else package.parent / kind


def is_builtin(cls: type, kind: str) -> bool:
    """Return whether a plugin's class lies in the built-in folder."""
    return Path(source_file(cls)).parent == builtin_folder(kind).resolve()


def plugin_line(error: BaseException, builtin: bool = True) -> str:
    """Return the innermost line of a plugin's file that raised an error, or its cause: `a.py, line 17`; else "".
    builtin: the library's own plugins count, too."""
    modules, place = _plugin_modules(), ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename)
        if not builtin and any(file.is_relative_to(builtin_folder(kind)) for kind in KINDS):
            continue
        top = (name := str(frame.f_globals.get("__name__"))).partition(".")[0]
        if top != "staleharness" and (name.startswith(PREFIX) or {name, top} & modules):
            place = f"{file.name}, line {line}"
    return place or (plugin_line(error.__cause__) if error.__cause__ else "")


def source_file(cls: type) -> str:
    """Path of the file that defines a plugin class. Raises `UserError` for a class of a notebook's cell."""
    with contextlib.suppress(OSError, TypeError):
        return str(Path(inspect.getsourcefile(cls) or inspect.getfile(cls)).resolve())
    raise UserError(f"{cls.__qualname__} is defined in no file, which workers need; {OWN_FILE}")


def source_hash(cls: type, active: frozenset[str] = frozenset()) -> str:
    """Hash of what the plugin's file says, and those of the user's that it imports or derives from: a comment, a
    docstring or the layout do not count, nor options `later` than those in `active` (`options.active_options`)."""
    bases = [Path(source_file(base)) for base in cls.__mro__[1:] if base.__module__.startswith(PREFIX)]
    builtin = any(is_builtin(cls, kind) for kind in ("algorithms", "envs", "lags", "mismatches"))
    return code_hash(Path(source_file(cls)), active, None if builtin else bases)


def summary(cls: type) -> str:
    """First line of the plugin's docstring."""
    return (inspect.getdoc(cls) or "").partition("\n")[0]
