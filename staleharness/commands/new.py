"""`staleharness new`: a working plugin file to start from."""

from __future__ import annotations

import importlib
import keyword
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..errors import UserError
from .shared.arguments import place, value
from .shared.templates import TEMPLATES, Template


@dataclass(frozen=True)
class Command:
    """Write a working plugin file to start from."""

    kind: Annotated[str, place("|".join(TEMPLATES))]
    """What to write."""
    name: Annotated[str, place("NAME")]
    """Name of the plugin, like my_idea."""
    folder: Annotated[str | None, value("FOLDER")] = None
    """Where to put the file; a checkout's own plugin folder by default."""


def handle(command: Command) -> int:
    from ..base.plugins import builtin_folder

    path = write(command.kind, command.name, command.folder)
    template = TEMPLATES[command.kind]
    print(f"wrote {path}")
    found = path.resolve().parent == builtin_folder(template.folder).resolve()
    plugin = "" if found else f" --plugin {shlex.quote(str(path))}"
    flags = template.flags.format(name=command.name, cls=_class_of(command.name))
    print(f"try: staleharness sweep {flags} --k 8{plugin}")
    return 0


def write(kind: str, name: str, folder: str | None) -> Path:
    """Write `<folder>/<name>.py` and return its path. Raises `UserError`; an existing file is never touched."""
    from ..base.files import user_path

    if kind not in TEMPLATES:
        *first, last = (f"`new {known} NAME`" for known in TEMPLATES)
        raise UserError(f"new {kind!r}: give {', '.join(first)} or {last}")
    template, cls = TEMPLATES[kind], _class_of(name)
    if not re.fullmatch(r"[a-z][a-z0-9_]{,60}", name, re.ASCII) or keyword.iskeyword(name):
        raise UserError(f"NAME={name!r} is not a plugin name; use lower-case letters, digits and _, like my_idea")
    if keyword.iskeyword(cls) or any(cls in t.imported for t in TEMPLATES.values()):
        raise UserError(f"NAME={name!r} would be the class {cls}, which means something else; give another name")
    _refuse_taken(kind, template, name, cls)
    home = user_path(folder) if folder is not None else _home(template)
    path = home / f"{name}.py"
    if path.exists():
        raise UserError(f"{path} exists already; give another name or FOLDER")
    try:
        home.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(template.text.format(name=name, cls=cls, title=name.replace("_", " ").capitalize()))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _class_of(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _home(template: Template) -> Path:
    """The plugin folder of the checkout; in an installed package, the current folder."""
    from ..base.plugins import builtin_folder

    folder = builtin_folder(template.folder)
    return folder if folder.parent.name != "_builtin" else Path.cwd()


def _refuse_taken(kind: str, template: Template, name: str, cls: str) -> None:
    from ..base.plugins import Registry, source_file
    from ..task import all_families

    module, _, attribute = template.registry.partition(":")
    registry: Registry[type] = getattr(importlib.import_module(module), attribute)
    if name in registry:
        raise UserError(f"{template.what} called {name!r} exists already in {source_file(registry[name])}")
    for family in all_families() if kind == "env" else ():
        if family.find(cls) or family.find(f"{cls}-v0"):
            raise UserError(f"an environment called {cls!r} exists already in {source_file(family)}")
