"""`staleharness list`: what can be run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

from .shared.arguments import SWITCH, Help


@dataclass(frozen=True)
class Command:
    """List the algorithms, environments, lag models and mismatch models that can be run."""

    plugin: Annotated[str | None, Help("PATH,...")] = None
    """Plugin files or folders to load besides the built-in ones."""
    json: Annotated[bool, SWITCH] = False
    """Print one JSON object."""


def handle(command: Command) -> int:
    from ..api import load_plugins
    from ..running.plugin_listing import as_text, catalogue

    load_plugins(command.plugin)
    content = catalogue()
    print(json.dumps(content, sort_keys=True) if command.json else as_text(content))
    return 0
