"""`staleharness config`: the settings of a run or a study, and what differs between two."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ..errors import UserError
from .shared.arguments import Help, JsonOption

if TYPE_CHECKING:
    from collections.abc import Mapping

ABSENT = "–"


@dataclass(frozen=True, kw_only=True)
class Command(JsonOption):
    """Show the resolved settings of a run, or of the first run of a study. With --diff, show what differs."""

    source: Annotated[str, Help("ID|FILE.toml")]
    """Stored run, by its id or the first digits of it, or the TOML file of a study."""
    diff: Annotated[str | None, Help("ID|FILE.toml")] = None
    """Another run or file to compare it with."""
    out: Annotated[str, Help("FOLDER", "results")] = "results"
    """Results folder in which ids are looked up."""


def handle(command: Command) -> int:
    """Print one setting per line, sorted. Raises `UserError` if there is no such run or file."""
    spec = settings(command.source, command.out, complete=command.diff is not None)
    if command.diff is None:
        text = [f"{key} = {format_setting(spec[key])}" for key in sorted(spec)]
        content: dict[str, Any] = spec
    else:
        other_spec = settings(command.diff, command.out, complete=True)
        content = differences(spec, other_spec)
        text = [f"{key}: {format_setting(a)} -> {format_setting(b)}" for key, (a, b) in content.items()] or [
            "nothing differs"
        ]
    print(json.dumps(content, sort_keys=True) if command.json else "\n".join(text))
    return 0


def settings(source: str, out: str, complete: bool) -> dict[str, Any]:
    """Settings of a stored run or a study's first run, as one flat mapping; hyper-parameters as `hyper.<name>`.

    complete: with those that are newer than the run, at the value that matches what it did, unless its plugin is gone.
    """
    if source.endswith(".toml"):
        from ..api import plan

        spec: dict[str, Any] = plan(spec=source).runs[0].spec.to_dict()
    else:
        from ..store.run_selection import find_run

        spec = dict(find_run(source, out, "ID").spec)
        if complete:
            from ..running.run_identity import read_stored

            with contextlib.suppress(UserError):
                spec = read_stored(spec)[0].to_dict()
    hyper = {f"hyper.{key}": x for key, x in dict(spec.pop("hyper", {})).items()}
    return {**spec, **hyper}


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Map each setting that differs to its values (in a, in b), None where it is absent; sorted."""
    keys = sorted({*a, *b})
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def format_setting(x: Any) -> str:
    return ABSENT if x is None else x if isinstance(x, str) else json.dumps(x)
