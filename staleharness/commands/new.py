"""`staleharness new`: a working plugin file to start from."""

from __future__ import annotations

import keyword
import pkgutil
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..errors import UserError
from .shared.arguments import Help


@dataclass(frozen=True)
class Template:
    """Template of a plugin file of one kind; its text is in `templates/`.

    In the text, {name} is the plugin's name as typed, {cls} its class, {title} its name in words.
    """

    noun: str  # with its article
    registry: str  # module:name, of the package
    folder: str  # of a checkout, where such plugins lie
    flags: str  # of a sweep that tries it
    ids: tuple[str, ...] = ()  # of the environments in it


TEMPLATES = {
    "algorithm": Template(
        "an algorithm", "staleharness.algorithm:ALGORITHMS", "algorithms", "--env Hopper --algo {name}"
    ),
    "env": Template(
        "an environment family", "staleharness.task:ENVS", "envs", "--algo ppo_clip --env {cls}", ("{cls}", "{cls}-v0")
    ),
    "language": Template(
        "a language task", "staleharness.task:ENVS", "envs", "--algo ppo_clip --env {name}", ("{name}",)
    ),
    "lag": Template("a lag model", "staleharness.lag:LAGS", "lags", "--env Hopper --algo ppo_clip --lag {name}"),
    "mismatch": Template(
        "a mismatch model",
        "staleharness.mismatch:MISMATCHES",
        "mismatches",
        "--env Hopper --algo ppo_clip --mismatch {name}",
    ),
    "decoder": Template(
        "a decoder",
        "staleharness.language.decoder_interface:DECODERS",
        "decoders",
        "--env word-problems --algo ppo_clip --set decoder={name}",
    ),
}


@dataclass(frozen=True)
class Command:
    """Write a working plugin file to start from."""

    kind: Annotated[str, Help("|".join(TEMPLATES))]
    """Kind of plugin to write."""
    name: Annotated[str, Help("NAME")]
    """Name of the plugin, e.g. my_idea."""
    folder: Annotated[str | None, Help("FOLDER")] = None
    """Folder for the file; by default the current one, and inside a checkout its plugin folder."""


def handle(command: Command) -> int:
    from ..base.plugins import builtin_folder

    path = write(command.kind, command.name, command.folder)
    template = TEMPLATES[command.kind]
    print(f"wrote {path}")
    builtin = path.resolve().parent == builtin_folder(template.folder).resolve()
    plugin = "" if builtin else f" --plugin {shlex.quote(str(path))}"
    flags = template.flags.format(name=command.name, cls=_class_of(command.name))
    print(f"try: staleharness sweep {flags} --k 8{plugin}")
    return 0


def write(kind: str, name: str, folder: str | None) -> Path:
    """Write `<folder>/<name>.py` and return its path. Raises `UserError`; an existing file is never touched."""
    from ..base.parsing import user_path

    if kind not in TEMPLATES:
        *first, last = (f"`new {kind} NAME`" for kind in TEMPLATES)
        raise UserError(f"new {kind!r}: give {', '.join(first)} or {last}")
    template, cls = TEMPLATES[kind], _class_of(name)
    if not re.fullmatch(r"[a-z][a-z0-9_]{,60}", name, re.ASCII) or keyword.iskeyword(name):
        raise UserError(f"NAME={name!r} is not a plugin name; use lower-case letters, digits and _, like my_idea")
    if name == "all":
        raise UserError("NAME='all' asks for all plugins wherever it is typed; give another name")
    if keyword.iskeyword(cls) or any(re.search(rf"import .*\b{cls}\b", _text(template)) for template in TEMPLATES):
        raise UserError(
            f"NAME={name!r} would be the class {cls}, which Python or plugin files use already; give another name"
        )
    _refuse_taken(template, name, cls)
    home = user_path(folder) if folder is not None else _home(template)
    path = home / f"{name}.py"
    if path.exists():
        raise UserError(f"{path} exists already; give another name or FOLDER")
    try:
        home.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(_text(kind, name=name, cls=cls, title=name.replace("_", " ").capitalize()))
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from error
    return path


def _text(kind: str, **words: str) -> str:
    text = Path(__file__).with_name("templates").joinpath(f"{kind}.py.txt").read_text(encoding="utf-8")
    return re.sub(r"\{(name|cls|title)\}", lambda match: words.get(match[1], ""), text)


def _class_of(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _home(template: Template) -> Path:
    """Return the checkout's plugin folder if the current folder is inside it, otherwise the current folder."""
    from ..base.plugins import builtin_folder

    checkout, folder = Path(__file__).resolve().parents[2], Path.cwd().resolve()
    inside = (checkout / "pyproject.toml").is_file() and folder.is_relative_to(checkout)
    return builtin_folder(template.folder) if inside else folder


def _refuse_taken(template: Template, name: str, cls: str) -> None:
    from ..base.plugins import Registry, source_file
    from ..task import all_families

    registry: Registry[type] = pkgutil.resolve_name(template.registry)
    if name in registry:
        raise UserError(f"{template.noun} called {name!r} exists already in {source_file(registry[name])}")
    ids = [text.format(name=name, cls=cls) for text in template.ids]
    for family in sorted(all_families(), key=lambda family: family.fallback) if ids else ():
        if any(family.find(env) for env in ids):
            raise UserError(f"an environment called {ids[0]!r} exists already in {source_file(family)}")
