"""Would training several runs as one stack of networks pay? Eight networks one after the other against one `bmm`.

    python benchmarks/batched_policies.py [--quick]

A sweep is many small networks, so it is tempting to train eight seeds together: [8, n, 64] @ [8, 64, 64] in place of
eight products. What could be gained is the dispatch of eight calls less one; the arithmetic stays. Printed is the gain
for the two things that a pass through the networks consists of, on one thread. A method's loss would gain nothing: it
must be computed run by run, since rules such as VACO's filter look at a minibatch as a whole.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from bench_table import show

RUNS, WIDTH = 8, 64


def microseconds(work: Callable[[], object], calls: int) -> float:
    """Processor time of a call: the least of several rounds, since others can only add to it."""
    rounds = []
    for _ in range(9):
        start = time.process_time()
        for _ in range(calls):
            work()
        rounds.append(1e6 * (time.process_time() - start) / calls)
    return min(rounds)


def measure(rows: int, calls: int) -> tuple[float, float]:
    """Return the speed-up of the stack: (products, tanh)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(RUNS, rows, WIDTH, generator=generator)
    weight = 0.1 * torch.randn(RUNS, WIDTH, WIDTH, generator=generator)
    bias, out = torch.zeros(RUNS, 1, WIDTH), torch.empty(RUNS, rows, WIDTH)

    per_run = list(zip(bias, x, weight, out, strict=True))

    def one_by_one() -> None:
        for b, inputs, w, outputs in per_run:
            torch.addmm(b, inputs, w, out=outputs)

    products = [microseconds(one_by_one, calls)]
    products.append(microseconds(lambda: torch.baddbmm(bias, x, weight, out=out), calls))
    tanh = [microseconds(lambda: [outputs.tanh_() for *_, outputs in per_run], calls)]
    tanh.append(microseconds(out.tanh_, calls))
    return products[0] / products[1], tanh[0] / tanh[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer calls")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{RUNS} networks of width {WIDTH} in one stack: so many times faster than one after the other")
    print(f"  {'rows each':>10}{'products':>10}{'tanh':>8}")
    gains = []
    for rows in (64, 256, 512):
        gains.append(measure(rows, 10 if arguments.quick else 60))
        print(f"  {rows:>10}{gains[-1][0]:>10.2f}{gains[-1][1]:>8.2f}", flush=True)
    show(f"{RUNS} networks as one stack / one by one", [gain for pair in gains for gain in pair])


if __name__ == "__main__":
    main()
