"""`staleharness list`: what can be run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from .shared.arguments import SWITCH, value


@dataclass(frozen=True)
class Command:
    """Algorithms and environments that can be run."""

    plugin: Annotated[str | None, value("PATH,...")] = None
    """Plugin files or folders to load besides the built-in ones."""
    json: Annotated[bool, SWITCH] = False
    """Print one JSON object."""


def handle(command: Command) -> int:
    from ..api import list_algorithms, list_envs
    from ..running.catalogue import as_text

    content = {"algorithms": list_algorithms(command.plugin), "envs": list_envs()}
    print(json.dumps(content, sort_keys=True) if command.json else as_text(content))
    return 0
