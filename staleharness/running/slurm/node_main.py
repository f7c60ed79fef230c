"""Program that a node runs for one task of an array: `python -m staleharness.running.slurm.node_main FOLDER`.

Its messages are in one file per start: a task that Slurm requeues starts again later, perhaps on another node, while
the first process may still be writing.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...store.store import Store
from .job_array import JobArray

CODES = {"done": 0, "failed": 1, "interrupted": 75}  # 75: "temporary failure; invited to retry" (sysexits.h)


def main(folder: Path, env: Mapping[str, str]) -> int:
    """Execute the run of this task; return the exit code."""
    warnings: list[int] = []
    signal.signal(signal.SIGUSR1, lambda signum, frame: warnings.append(signum))
    from .. import worker  # after that: the import takes seconds

    array = JobArray.read(folder)
    index, start = int(env["SLURM_ARRAY_TASK_ID"]), int(env.get("SLURM_RESTART_COUNT", "0"))
    last: dict[str, Any] = {}
    with open(array.messages(index, start), "ab", buffering=0) as stream:

        def tell(message: dict[str, Any]) -> None:
            last.update(message)
            try:
                stream.write(json.dumps(message).encode() + b"\n")
            except OSError as error:  # the run continues: the results folder decides whether it is finished
                sys.stderr.write(f"this task's messages cannot be written: {error}\n")

        tell({"host": socket.gethostname()})
        # another holder at each start, because an earlier process may still be writing
        holder = Store(array.jobs[index].root).next_holder(array.jobs[index].run_id)
        worker.main(replace(array.jobs[index], holder=holder), tell, lambda: bool(warnings))
    return CODES[last["event"]]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), os.environ))
