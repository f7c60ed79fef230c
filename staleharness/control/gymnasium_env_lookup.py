"""Environments by their gymnasium ids: `Id-v0`, `module:Id-v0` (gymnasium's own form, which imports the module first),
and either with keywords of `gymnasium.make`, `module:Id-v0[option=value]`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

from ..base.console_log import LOGGER
from ..base.parsing import PluginChoice, parse_assignments
from ..base.plugin_code_hash import code_hash, module_files, package
from ..base.plugin_files import import_problem
from ..errors import UserError, nearest

FLATTEN = "flatten"
"""Option that wraps an environment in gymnasium's `FlattenObservation`; any other is a keyword of `gymnasium.make`."""


class GymnasiumId(NamedTuple):
    """Environment in gymnasium's registry."""

    module: str  # imported first; empty where none is named
    id: str
    options: dict[str, Any]

    @property
    def text(self) -> str:
        """The id as `find` takes it: the options sorted."""
        name = f"{self.module}:{self.id}" if self.module else self.id
        return PluginChoice(name, self.options).label


def parse(env: str) -> GymnasiumId | None:
    """Parse an id as typed; None for other text. Imports nothing."""
    match = re.fullmatch(r"(?:([\w.]+):)?([\w./-]+)(?:\[(.*)\])?", env)
    if match is None:
        return None
    module, id, inside = match.groups("")
    return GymnasiumId(module, id, parse_assignments(inside, f"ENV={env}"))


def find(env: str) -> str | None:
    """Return an id as gymnasium spells it, or None for an unknown id. Without a version, the newest is returned.

    Imports the module that the id names; without one, installed packages that offer ids as the entry point
    `gymnasium.envs` (gymnasium itself has not loaded them since 1.0) are imported where the id is not known yet. Raises
    `UserError` for a module that cannot be imported, or that registers no such id.
    """
    if (name := parse(env)) is None:
        return None
    if name.module:
        import_module(name)
    elif _spelling(name.id) is None:
        _import_entry_points()
    if (id := _spelling(name.id)) is not None:
        module = "" if entry_point(id).startswith("gymnasium.") else name.module  # gymnasium's own need no import
        return name._replace(module=module, id=id).text
    if name.module:
        import gymnasium

        hint = nearest(name.id, gymnasium.registry)
        raise UserError(f"ENV={env}: the module {name.module} registers no {name.id!r}; {hint}")
    return None


def import_module(name: GymnasiumId) -> None:
    """Import the module that an id names. Raises `UserError`."""
    module, where = name.module, f"ENV={name.text}"
    try:
        with contextlib.redirect_stdout(sys.stderr):
            importlib.import_module(module)
    except (Exception, SystemExit) as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent and f"{module}.".startswith(f"{absent}."):
            problem = f"there is no module {absent}; install its package, or put its folder on PYTHONPATH"
        else:
            problem = f"the module {module} does not import: {import_problem(error)}"
        raise UserError(f"{where}: {problem}") from error


def make(env: str, **keywords: Any) -> Any:
    """Make one environment; `keywords` are further arguments of `gymnasium.make`.

    Raises errors of gymnasium, and `UserError` as `find` does.
    """
    import gymnasium
    from gymnasium.wrappers import DtypeObservation, FlattenObservation

    name = parse(env) or GymnasiumId("", env, {})
    if name.module:
        import_module(name)
    options = {**name.options, **keywords}
    flatten = options.pop(FLATTEN, False)
    if not isinstance(flatten, bool):
        raise UserError(f"ENV={env}: {FLATTEN}={flatten} is not true or false")
    single: Any = gymnasium.make(name.id, disable_env_checker=True, **options)
    if flatten:
        single = FlattenObservation(single)
        if single.observation_space.dtype.kind != "f":  # choices are flattened to zeros and ones
            single = DtypeObservation(single, "float32")
    return single


def entry_point(env: str) -> str:
    """Return where the code of an environment is, according to gymnasium's registry; empty for an unknown id."""
    import gymnasium

    name = parse(env)
    spec = gymnasium.registry.get(name.id) if name else None
    return str(spec.entry_point) if spec else ""


def code_digest(env: str) -> str:
    """Return the hash of how an environment is registered (class, keywords, time limit, wrappers) and of the user's
    files that hold its class and wrappers; empty for gymnasium's own ids. Code of installed packages does not count."""
    import gymnasium

    name = parse(env)
    spec = gymnasium.registry.get(name.id) if name else None
    if spec is None or (str(spec.entry_point).startswith("gymnasium.") and spec.id in _gymnasium_ids()):
        return ""
    wrappers = [[wrapper.entry_point, wrapper.kwargs] for wrapper in spec.additional_wrappers]
    registration = [_plain(spec.entry_point), spec.kwargs, spec.max_episode_steps, wrappers]
    lines = [json.dumps(registration, sort_keys=True, default=_with_code)]
    for point in (spec.entry_point, *(wrapper.entry_point for wrapper in spec.additional_wrappers)):
        file = _code_file(point)
        lines += [code_hash(file, bases=())] if file and file.is_file() and not package(file) else []
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _code_file(point: object) -> Path | None:
    """Return the file of an entry point, `module:Class` or a callable; None without one."""
    while isinstance(point, functools.partial):
        point = point.func
    if isinstance(point, str):
        *_, file = None, *module_files(point.partition(":")[0].split("."))
        return file
    with contextlib.suppress(TypeError):  # of callables without a file
        return Path(inspect.getsourcefile(point) or "").resolve()  # type: ignore[arg-type]
    return None


def _with_code(value: object) -> str:
    """Return a keyword as `_plain` does, a callable of the user's with the hash of its file."""
    file = _code_file(value) if callable(value) else None
    return (
        f"{_plain(value)} {code_hash(file, bases=())}"
        if file and file.is_file() and not package(file)
        else _plain(value)
    )


def _plain(value: object) -> str:
    """Return a keyword that is not plain data as text without addresses, which differ from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(getattr(value, "__qualname__", repr(value))))


@functools.cache
def _gymnasium_ids() -> frozenset[str]:
    """Return the ids that gymnasium itself registers."""
    import gymnasium

    return frozenset(re.findall(r'id="([^"]+)"', inspect.getsource(gymnasium.envs)))


def _spelling(id: str) -> str | None:
    """Return an id as registered, matched in any case, of the newest version where none is given."""
    import gymnasium

    if id in gymnasium.registry:
        return id
    ids = {name.lower(): name for name in gymnasium.registry}
    versions = [name for name in ids if re.fullmatch(re.escape(id.lower()) + r"-v\d+", name)]
    newest = max(versions, key=lambda name: int(name.rpartition("-v")[2]), default="")
    return ids.get(id.lower(), ids.get(newest))


def _import_entry_points() -> None:
    """Let installed packages register their ids; warns of one that does not import, and continues."""
    for point in importlib.metadata.entry_points(group="gymnasium.envs"):
        try:
            with contextlib.redirect_stdout(sys.stderr):
                content = point.load()
                if callable(content):
                    content()
        except (Exception, SystemExit) as error:
            LOGGER.warning(
                "the environments of %s (%s) do not import: %s", point.name, point.value, import_problem(error)
            )
