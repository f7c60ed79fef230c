"""A task of a job array that starts at once: the real one, except that its worker loads no torch and learns nothing. It
counts phases, writes its progress down after each, and ends as its job's spec says.

spec: phases, nap (seconds a phase), ends ("done", "failed", "dies": without a word), stays (seconds after its
last word, deaf to SIGTERM), gate (the phase before which it waits for the file `open` beside its own, or for one of its
own that ends in `.open`; 0: none).
"""

from __future__ import annotations

import os
import signal
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from staleharness.running.runner_interface import Job
from staleharness.running.slurm import node_main


def work(job: Job, tell: Callable[[dict[str, Any]], None], asked_to_stop: Callable[[], bool]) -> None:
    signals: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: signals.append(signum))
    place = Path(job.root) / job.run_id
    with open(place.with_suffix(".lives"), "a") as lives:
        print(os.getpid(), file=lives)
    done = int(place.read_text()) if place.is_file() else 0
    tell({"preparing": f"reading phase {done}"})
    for phase in range(done + 1, job.spec["phases"] + 1):
        time.sleep(job.spec["nap"])
        gates = place.parent / "open", place.with_suffix(".open")
        while phase == job.spec["gate"] and not any(map(Path.exists, gates)) and not signals and not asked_to_stop():
            time.sleep(0.01)
        own = place.with_suffix(f".{os.getpid()}")  # a task whose node is lost may go on beside its next life
        own.write_text(str(phase))
        own.rename(place)
        tell({"phase": phase, "phases": job.spec["phases"], "at": time.monotonic()})
        if signals or asked_to_stop():
            tell({"event": "interrupted", "message": f"stopped after phase {phase}"})
            time.sleep(job.spec["stays"])
            return
    if job.spec["ends"] == "dies":
        os._exit(3)
    tell({"event": job.spec["ends"], "class": "Diverged", "message": "", "log_tail": ""})
    time.sleep(job.spec["stays"])


if __name__ == "__main__":
    worker: Any = types.ModuleType("staleharness.running.worker")
    worker.main = work
    sys.modules[worker.__name__] = worker
    sys.exit(node_main.main(Path(sys.argv[1]), os.environ))
