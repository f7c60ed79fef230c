"""A program: runs a method that draws from a global generator on every kind of task, and prints a digest of each run.

    python digests.py MODEL

Of each kind and each generator: the metrics of the run, and of one that went on from a checkpoint in its middle.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from staleharness.api import load_plugins
from staleharness.running.plan import plan
from staleharness.simulator.loop import simulation_of
from staleharness.store.study import ask

RUNS = {
    "control": {
        "env": "Pendulum",
        "steps": "256",
        "settings": "num_envs=2,num_steps=32,epochs=1,minibatches=2,evaluation_episodes=1,final_episodes=1",
    },
    "tokens": {
        "env": "word-problems",
        "steps": "4",
        "settings": "prompts=2,completions=2,prompt_tokens=64,completion_tokens=4,evaluation_problems=2,"
        "training_problems=8",
    },
    "chain": {"env": "bit-chain", "steps": "4", "settings": "horizon=4,batch=8"},
}


def digest(records: list[Any]) -> str:
    lines = [[record.metrics, record.scores and record.scores.returns] for record in records]
    return hashlib.sha256(json.dumps(lines, sort_keys=True).encode()).hexdigest()


def main(model: str) -> None:
    load_plugins(Path(__file__).with_name("drawing_plugin.py"))
    found = {}
    for kind, asked in RUNS.items():
        own = {"model": model} if kind == "tokens" else {}
        for source in ("python", "numpy", "torch"):
            asking = ask(**asked, **own, algo=f"draws[source={source}]", k="2", seeds="1")
            (planned,) = plan(asking).runs
            whole, cut, again = (simulation_of(planned.spec) for _ in range(3))
            straight = digest(list(whole))
            first = [cut.advance(), cut.advance()]
            again.load_state_dict(cut.state_dict())
            found[f"{kind} {source}"] = straight, digest([*first, *again])
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
