"""A worker that reports each step before its first phase, and at each looks at its run as `status` does: before anybody
hears of it, so that neither waits for the other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from staleharness.base import cancellation
from staleharness.running.runner_interface import PREPARING, Job
from staleharness.running.runners import local
from staleharness.store.run_states import as_text, run_states
from staleharness.store.store import Store


def states(root: Path) -> Path:
    """The file of what was seen: a line (state, phase, text of `status`) for each report."""
    return root.with_suffix(".states")


class Looking:
    """A channel, which looks before it sends."""

    def __init__(self, channel: Any, root: Path) -> None:
        self.channel, self.root = channel, root

    def send(self, message: dict[str, Any]) -> None:
        if PREPARING in message:
            found = run_states(Store(self.root))
            (row,) = found["runs"]
            with states(self.root).open("a") as file:
                print(json.dumps([row["state"], row["phase"], as_text(found)]), file=file)
        self.channel.send(message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.channel, name)


def child(job: Job, channel: Any, gpu: str) -> None:
    """Stand in for `local._in_child`."""
    cancellation.REPORT_EVERY = 0.0
    local._in_child(job, Looking(channel, Path(job.root)), gpu)  # type: ignore[arg-type]
