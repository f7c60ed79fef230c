"""Golden traces: a parameter hash per phase of one tiny run per algorithm.

    python tests/golden/traces.py          compare with traces.json
    python tests/golden/traces.py --write  write it anew: the change moves results, say so in its message

Bits hold within one fingerprint only, so the file says what it was made with.
"""

from __future__ import annotations

import hashlib
import json
import sys
import warnings
from pathlib import Path

import torch

from staleharness.fingerprint import cpu_model, installed
from staleharness.simulate import Simulation
from staleharness.spec import ControlSpec

FILE = Path(__file__).with_name("traces.json")
ALGORITHMS = ("a3po", "decoupled_ppo", "impala", "ppo_clip", "ppo_kl", "spo", "vaco")


def made_with() -> dict[str, str | None]:
    """What the bits of a trace depend on."""
    return {
        "cpu": cpu_model(),
        **{name: installed(name) for name in ("torch", "mujoco", "gymnasium", "numpy")},
    }


def trace(algorithm: str) -> list[str]:
    """Hashes of all parameters after each of five phases, K = 3."""
    spec = ControlSpec(
        env="Hopper-v5", algorithm=algorithm, capacity=3, steps=5 * 4 * 48, num_envs=4, num_steps=48, epochs=2,
        minibatches=3, evaluations=1, evaluation_episodes=1, final_episodes=1,
    )  # fmt: skip
    simulation = Simulation(spec)
    hashes = []
    for _ in simulation:
        hashes.append(hashlib.sha256(simulation.policy.flat.detach().numpy().tobytes()).hexdigest()[:16])
    simulation.close()
    return hashes


def main() -> int:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    traces = {algorithm: trace(algorithm) for algorithm in ALGORITHMS}
    if "--write" in sys.argv:
        FILE.write_text(
            json.dumps({"made_with": made_with(), "traces": traces}, indent=1, sort_keys=True) + "\n"
        )
        return 0
    moved = [
        name for name, hashes in json.loads(FILE.read_text())["traces"].items() if hashes != traces[name]
    ]
    print("moved: " + ", ".join(moved) if moved else "no trace moved")
    return 1 if moved else 0


if __name__ == "__main__":
    sys.exit(main())
