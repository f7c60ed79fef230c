"""Versions read from the host, and bytes read from the GPU's memory, where versions decode together.

    python benchmarks/resident_versions.py

A simulation of rounds of 32 groups of 8 completions, each group by one of K versions (uniform lag), with the package's
own slots and batches. First the reads from the host where fewer versions fit than K. Then the gigabytes that a
decoding step reads: were all parts padded to the longest, were they cut where that reads least, and as it is, with
padding in products alone.
"""

from __future__ import annotations

import numpy as np
import torch

from staleharness.language.model.fused_forward import Weights
from staleharness.language.model.version_offload import ResidentVersions
from staleharness.language.version_groups import batches
from staleharness.training.policy_buffer import Version

GROUPS, EACH, ROUNDS = 32, 8, 200
# GB of a version's matrices in bfloat16, kB of a token's keys and values, tokens in the cache on average
MODELS = {
    "0.5B, 512 + 512 tokens": (0.99, 12.3, 768),
    "1.5B, 512 + 512 tokens": (3.1, 28.7, 768),
    "0.5B, 512 + 8192 tokens": (0.99, 12.3, 4608),
    "1.7B with 32 key heads, 512 + 8192 tokens": (3.4, 197.0, 4608),
}


def host_reads(capacity: int, slots: int) -> tuple[float, float]:
    """Return versions read from the host a round, in decoding and in scoring."""
    rng, reads = np.random.default_rng(0), np.zeros((ROUNDS, 2))
    buffer: list[Version] = []
    loads: list[Version] = []

    def load(version: Version) -> Weights:
        if version is not buffer[-1]:  # the newest is the learner
            loads.append(version)
        return {"w": torch.zeros(1), "words": torch.zeros(1)}

    resident = ResidentVersions(slots, load)
    for turn in range(capacity + ROUNDS):
        buffer = [*buffer, Version(turn, turn, {})][-capacity:]
        acting = np.repeat(rng.integers(0, len(buffer), GROUPS), EACH)
        groups = [np.flatnonzero(acting == v) for v in np.unique(acting)]
        for rows in batches(groups, acting[:, None], slots, 0):
            resident.weights([buffer[version] for version in np.unique(acting[rows])])
        decoding = len(loads)
        for group in reversed(groups):
            resident.weights([buffer[acting[group[0]]]])
        if turn >= capacity:
            reads[turn - capacity] = decoding, len(loads) - decoding
        loads.clear()
    return tuple(reads.mean(0).tolist())


def step_reads(capacity: int, matrices: float, row: float) -> tuple[float, float, float]:
    """Return GB that a decoding step reads with parts as long as the longest, with parts cut at best, and with the rows
    there are. row: GB of keys and values."""
    rng, sums = np.random.default_rng(0), np.zeros(3)
    for _ in range(ROUNDS):
        rows = EACH * np.unique(rng.integers(0, capacity, GROUPS), return_counts=True)[1]
        read = [np.ceil(rows / size).sum() * (matrices + size * row) for size in range(EACH, rows.max() + 1, EACH)]
        sums += read[-1], min(read), len(rows) * matrices + rows.sum() * row
    return tuple((sums / ROUNDS).tolist())


if __name__ == "__main__":
    print("versions read from the host a round: K, slots, in decoding, in scoring")
    for capacity, slots in ((16, 4), (16, 7), (16, 8), (16, 14), (16, 16), (64, 16), (64, 32)):
        decoding, scoring = host_reads(capacity, slots)
        print(f"{capacity:4d} {slots:4d} {decoding:6.1f} {scoring:6.1f}")
    print("GB read in a decoding step: K, all parts padded, cut at best, padding in products alone")
    for name, (matrices, kilobytes, tokens) in MODELS.items():
        for capacity in (4, 16):
            longest, cut, now = step_reads(capacity, matrices, kilobytes * tokens / 1e6)
            print(f"{capacity:4d} {longest:7.1f} {cut:7.1f} {now:7.1f}  {now / longest - 1:+.1%}  {name}")
