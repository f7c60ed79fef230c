"""What a worker is handed: names and plain data, never plugin objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Job:
    """One run to execute."""

    run_id: str
    label: str  # the algorithm as the user named it
    spec: dict[str, Any]  # `RunSpec.to_dict()`
    root: str  # the results folder, absolute
    folder: str = ""  # where the user stood: relative paths in the spec begin there
    plugins: str = ""  # `$STALEHARNESS_PLUGINS`: where the sweep found its plugins
    checkpoint_seconds: float = 30.0  # between two checkpoints
    holder: str = ""  # `Store.next_holder`, where workers on several machines share the results folder
    share: int = 1  # of the room for that many runs: more where a run has run out of memory beside others
    restart: bool = False  # start over where no checkpoint fits, instead of refusing the run
