"""Runs of a method that draws from a global generator, on every kind of task. As a program: prints their digests.

python digests.py MODEL
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from known_plugins import loaded_plugins

from staleharness.running.plan import PlannedRun, plan
from staleharness.study import sweep_request
from staleharness.training.loop import simulation_of

PLUGIN = Path(__file__).with_name("drawing_plugin.py")
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


def digest_of(records: list[Any]) -> str:
    lines = [[record.metrics, record.scores and record.scores.returns] for record in records]
    return hashlib.sha256(json.dumps(lines, sort_keys=True).encode()).hexdigest()


def runs(model: str) -> dict[str, PlannedRun]:
    """A run of each kind that draws from all generators, and of the quickest kind with each."""
    found = {}
    for kind, asked in RUNS.items():
        own = {"model": model} if kind == "tokens" else {}
        for source in ("python", "numpy", "torch", "all") if kind == "chain" else ("all",):
            asking = sweep_request(**asked, **own, algo=f"draws[source={source}]", k="2", seeds="1")
            (found[f"{kind} {source}"],) = plan(asking).runs
    return found


def digest_of_run(run: PlannedRun) -> str:
    return digest_of(list(simulation_of(run.spec)))


def digest_of_resumption(run: PlannedRun) -> str:
    """Digest of a run that went on from a checkpoint in its middle."""
    cut, again = simulation_of(run.spec), simulation_of(run.spec)
    first = [cut.advance(), cut.advance()]
    again.load_state_dict(cut.state_dict())
    return digest_of([*first, *again])


if __name__ == "__main__":
    with loaded_plugins(PLUGIN):
        print(json.dumps({name: digest_of_run(run) for name, run in runs(sys.argv[1]).items()}))
