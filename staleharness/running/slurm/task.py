"""What a node runs: one task of an array, which is one run. `python -m staleharness.running.slurm.task FOLDER`.

What it tells lies in a file per life: a task that Slurm puts back in its queue has another life later, perhaps on
another node, while what is left of the first may still be writing.
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
from .array import Array

CODES = {"done": 0, "failed": 1, "interrupted": 75}  # 75: "temporary failure; invited to retry" (sysexits.h)


def main(folder: Path, env: Mapping[str, str]) -> int:
    """Carry out the run that this task is for; returns the exit code."""
    warnings: list[int] = []
    signal.signal(signal.SIGUSR1, lambda signum, frame: warnings.append(signum))
    from .. import worker  # after that: it loads for seconds what is heavy

    array = Array.read(folder)
    index, life = int(env["SLURM_ARRAY_TASK_ID"]), int(env.get("SLURM_RESTART_COUNT", "0"))
    last: dict[str, Any] = {}
    with open(array.told(index, life), "ab", buffering=0) as stream:

        def tell(message: dict[str, Any]) -> None:
            last.update(message)
            try:
                stream.write(json.dumps(message).encode() + b"\n")
            except OSError as error:  # the run goes on: whether it is finished is for the results folder to say
                sys.stderr.write(f"nothing more can be told: {error}\n")

        tell({"host": socket.gethostname()})
        # a holder of its own in each life, for what is left of an earlier one may still be writing
        holder = Store(array.jobs[index].root).next_holder(array.jobs[index].run_id)
        worker.main(replace(array.jobs[index], holder=holder), tell, lambda: bool(warnings))
    return CODES[last["event"]]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), os.environ))
