"""`staleharness list`: what can be run."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .shared.arguments import JsonOption, PluginOption


@dataclass(frozen=True)
class Command(JsonOption, PluginOption):
    """List the algorithms, environments, lag models and mismatch models that can be run."""


def handle(command: Command) -> int:
    from ..api import load_plugins
    from ..running.plugin_listing import as_text, catalogue

    load_plugins(command.plugin)
    content = catalogue()
    print(json.dumps(content, sort_keys=True) if command.json else as_text(content))
    return 0
