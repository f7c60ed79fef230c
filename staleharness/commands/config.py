"""`staleharness config`: the settings of a run or a study, and what differs between two."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from .shared.arguments import SWITCH, Help

if TYPE_CHECKING:
    from collections.abc import Mapping

ABSENT = "–"


@dataclass(frozen=True, kw_only=True)
class Command:
    """Show every setting of a run, resolved; for the file of a study, of its first run. With --diff: what differs."""

    what: Annotated[str, Help("ID|FILE.toml")]
    """A stored run, by its id or the first digits of it, or the TOML file of a study."""
    diff: Annotated[str | None, Help("ID|FILE.toml")] = None
    """Another run or file to compare it with."""
    out: Annotated[str, Help("FOLDER", "results")] = "results"
    """Results folder in which ids are looked up."""
    json: Annotated[bool, SWITCH] = False
    """Print one JSON object."""


def handle(command: Command) -> int:
    """Print one setting a line, sorted. Raises `UserError` where there is no such run or file."""
    one = settings(command.what, command.out)
    if command.diff is None:
        text = [f"{key} = {format_setting(one[key])}" for key in sorted(one)]
        content: dict[str, Any] = one
    else:
        other = settings(command.diff, command.out)
        content = differences(one, other)
        text = [f"{key}: {format_setting(a)} -> {format_setting(b)}" for key, (a, b) in content.items()] or [
            "nothing differs"
        ]
    print(json.dumps(content, sort_keys=True) if command.json else "\n".join(text))
    return 0


def settings(what: str, out: str) -> dict[str, Any]:
    """Settings of a stored run or a study's first run, as one flat mapping; hyper-parameters as `hyper.<name>`."""
    if what.endswith(".toml"):
        from ..api import plan

        spec: dict[str, Any] = plan(spec=what).runs[0].spec.to_dict()
    else:
        from ..store.run_lookup import find_run

        spec = dict(find_run(what, out, "ID").spec)
    hyper = {f"hyper.{key}": x for key, x in dict(spec.pop("hyper", {})).items()}
    return {**spec, **hyper}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Setting -> (its value in one, in the other), None where it has none; sorted."""
    keys = sorted({*one, *other})
    return {key: (one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)}


def format_setting(x: Any) -> str:
    return ABSENT if x is None else x if isinstance(x, str) else json.dumps(x)
