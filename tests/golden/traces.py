"""Golden traces: what tiny runs come to, phase by phase, so that no result moves unnoticed.

    python tests/golden/traces.py          compare with traces.json
    python tests/golden/traces.py --write  write it anew: the change moves results, say so in its message

`traces.json` holds two things of each case. A *sketch* per phase, which holds on every processor within `TOLERANCE`:
how far the parameters are from where they began, and that step along fixed directions. And for each maker *hashes*, of
the parameters after each phase and of the final scores, which hold on a processor and libraries like the maker's.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from staleharness.base.system_info import cpu_model, package_version
from staleharness.training.loop import simulation_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))  # as a script it has no pytest to do that

from cases import cases, spec_of
from tiny_model import write_model, write_problems

FILE = Path(__file__).with_name("traces.json")
DIRECTIONS = 3
TOLERANCE = 0.005  # of the distance from the start; other instruction sets of one processor differ by up to 0.0007
LAST = 4.0  # times that in the last phase: on another processor a rounding may flip a draw (tokens/verl: 0.0099)


@functools.cache
def made_with() -> dict[str, Any]:
    """Return everything that the bits of a trace depend on."""
    return {
        "cpu": cpu_model(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        **{name: package_version(name) for name in ("torch", "mujoco", "gymnasium", "numpy", "transformers")},
    }


def write_inputs(folder: Path) -> None:
    """Write the model and the problems of the language runs."""
    write_model(folder, (2, 3, 5))
    write_problems(folder)


def trace(case: str, model: Path) -> dict[str, Any]:
    """{"hashes": [phases + 1], "sketch": [phases, 1 + DIRECTIONS]} of one run."""
    simulation = simulation_of(spec_of(case, model))
    begin = parameters(simulation)
    hashes, sketch, last = [], [], None
    for record in simulation:
        now = parameters(simulation)
        hashes.append(hashlib.sha256(now.tobytes()).hexdigest()[:16])
        sketch.append(project(now.astype(np.float64) - begin))
        last = record.scores
    simulation.close()
    assert last is not None, "the last phase is evaluated"
    hashes.append(hashlib.sha256(json.dumps([last.returns, last.lengths], sort_keys=True).encode()).hexdigest()[:16])
    return {"hashes": hashes, "sketch": sketch}


def parameters(simulation: Any) -> NDArray[np.float32]:
    """All parameters that train, one after the other."""
    policy = simulation.policy
    if hasattr(policy, "flat"):
        return policy.flat.detach().numpy().copy()
    return torch.cat([p.detach().flatten() for p in policy.parameters.values()]).numpy().copy()


def project(step: NDArray[np.float64]) -> list[float]:
    """The length of a step, and its components along vectors of cosines."""
    place = np.arange(1, len(step) + 1)
    along = [float(step @ np.cos(0.7390851 * (i + 1) * place)) for i in range(DIRECTIONS)]
    return [float(f"{x:.6g}") for x in (float(np.linalg.norm(step)), *along)]


def sketch_distance(sketch: list[list[float]], kept: list[list[float]]) -> float:
    """The greatest difference between two sketches, in units of the distance from the start; that of the last phase
    counts a quarter."""
    a, b = np.array(sketch), np.array(kept)
    if a.shape != b.shape:
        return float("inf")
    differences = np.abs(a - b) / np.maximum(b[:, :1], 1e-12)
    differences[-1] /= LAST
    return float(differences.max())


def main() -> int:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        found = {case: trace(case, Path(folder)) for case in cases()}
    kept = json.loads(FILE.read_text()) if FILE.is_file() else {"sketches": {}, "makers": []}
    # of native code, the bits are the compiler's
    hashes = {case: run["hashes"] for case, run in found.items() if not spec_of(case, Path()).toolchain()}
    sketches = {case: held["sketch"] for case, held in found.items()}
    if "--write" in sys.argv:
        moved = moved_cases(sketches, kept["sketches"])
        others = [  # the bits of other machines hold where the result does
            {**maker, "hashes": {case: bits for case, bits in maker["hashes"].items() if case not in moved}}
            for maker in kept["makers"]
            if maker["made_with"] != made_with()
        ]
        sketches = {case: sketches[case] if case in moved else kept["sketches"][case] for case in sketches}
        content = {"sketches": sketches, "makers": [*others, {"made_with": made_with(), "hashes": hashes}]}
        FILE.write_text(json.dumps(content, sort_keys=True) + "\n")
        return 0
    mine = [m for m in kept["makers"] if m["made_with"] == made_with()]
    bits = [case for m in mine for case in hashes if m["hashes"].get(case, hashes[case]) != hashes[case]]
    print("moved: " + (", ".join(moved_cases(sketches, kept["sketches"])) or "none"))
    print("other bits: " + ", ".join(bits) if mine else "bits: no trace of a machine like this one")
    worst = max(
        (sketch_distance(sketches[c], kept["sketches"][c]) for c in cases() if c in kept["sketches"]), default=0.0
    )
    print(f"greatest difference of a sketch: {worst:.2g}")
    return 1 if moved_cases(sketches, kept["sketches"]) or bits else 0


def moved_cases(sketches: dict[str, Any], kept: dict[str, Any]) -> list[str]:
    """Cases that are not, within the tolerance, what they were."""
    return [c for c in sketches if c not in kept or sketch_distance(sketches[c], kept[c]) > TOLERANCE]


if __name__ == "__main__":
    sys.exit(main())
