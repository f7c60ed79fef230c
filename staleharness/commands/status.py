"""`staleharness status`: the state of the runs in a results folder."""

from __future__ import annotations

import json
from dataclasses import dataclass

from .shared.arguments import JsonOption, ResultsFolder


@dataclass(frozen=True)
class Command(JsonOption, ResultsFolder):
    """Show which runs of a results folder are done, running, stopped or failed."""


def handle(command: Command) -> int:
    from ..store.run_states import as_text, run_states
    from ..store.store import Store

    store = Store(command.out)
    store.check_readable()
    content = run_states(store)
    print(json.dumps(content, sort_keys=True) if command.json else as_text(content))
    return 0
