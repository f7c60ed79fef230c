"""Speed of the simulation of a pipeline: a million trajectories of each kind, beside their limit.

    python benchmarks/pipeline.py [--rows 1000000] [--quick]

Both clocks are shown: seconds of this process, and seconds on the wall, which a machine with other work on it makes
longer.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from bench_table import show

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from staleharness.pipeline.event_simulation import simulate  # noqa: E402
from staleharness.pipeline.pipeline_settings import (  # noqa: E402
    PRESETS,
    Pipeline,
    preset,
)
from staleharness.pipeline.pipeline_summary import summary  # noqa: E402

LIMIT = "<= 10"  # processor seconds of a million trajectories
BATCH = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    options = parser.parse_args()
    rows = options.rows // 10 if options.quick else options.rows
    size = {"slots": BATCH, "batch": BATCH, "steps": max(1, rows // BATCH)}
    print(f"{rows:,} trajectories; at most 10 s a million")
    print(f"  {'pipeline':<14}{'rows':>11}{'simulate':>10}{'measure':>9}{'wall':>8}{'per million':>13}")
    slowest = []
    for name, pipeline in pipelines(size).items():
        wall, begin = time.perf_counter(), time.process_time()
        record = simulate(pipeline)
        middle = time.process_time()
        summary(record)
        end, wall = time.process_time(), time.perf_counter() - wall
        n = len(record.slot)
        per_million = (end - begin) / n * 1e6
        times = f"{middle - begin:>9.2f}s{end - middle:>8.2f}s{wall:>7.2f}s{per_million:>12.2f}s"
        print(f"  {name:<14}{n:>11,}{times}")
        slowest.append(per_million)
    show("pipelines, a million trajectories: the slowest", [max(slowest)], LIMIT, "s")


def pipelines(size: dict[str, int]) -> dict[str, Pipeline]:
    """The presets, and a queue that drops its oldest, in which every row is a group of its own."""
    drops = {"group": 1, "capacity": 1.0, "full": "drop_oldest", "train_seconds": 25.0}
    return {
        **{name: preset(name, size) for name in PRESETS},
        "drop oldest": Pipeline().with_settings({**size, **drops}),
    }


if __name__ == "__main__":
    main()
