"""Memory and time of `staleharness advise --log` on large logs.

    python benchmarks/logs.py [--quick] [--megabytes 1000] [--forms csv jsonl events trace]

Each log is written to a temporary folder: `csv` has two columns of short cells (56 million rows in 1 GB), `means` is a
CSV whose lags all differ, `jsonl` and `events` have ten metrics a step, `trace` is the harness's own. A command of its
own reads it; printed are its peak memory, that relative to the file's size, and processor seconds. Goal: at most 300 MB
whatever the size.
"""

from __future__ import annotations

import argparse
import random
import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench_table import show
from start import ROOT
from sweeps import command

LIMIT = 300.0  # MB
RUNS = ROOT / "results" / "reference" / "vaco_control"
METRICS = ("loss", "entropy", "kl", "reward/mean", "reward/std", "tokens", "grad_norm", "lr", "step_seconds")
TAG = "off_policy_level/all/mean"
BLOCK = 20_000  # rows written at once


def csv_block(first: int, draw: random.Random) -> bytes:
    return "".join(f"{i},{draw.randrange(9)}\n" for i in range(first, first + BLOCK)).encode()


def means_block(first: int, draw: random.Random) -> bytes:
    return "".join(f"{i},{9 * draw.random()!r}\n" for i in range(first, first + BLOCK)).encode()


def jsonl_block(first: int, draw: random.Random) -> bytes:
    metrics = ", ".join(f'"{name}": 0.123456' for name in METRICS)
    lines = (f'{{"step": {i}, {metrics}, "{TAG}": {draw.randrange(90) / 8}}}\n' for i in range(first, first + BLOCK))
    return "".join(lines).encode()


def events_block(first: int, draw: random.Random) -> bytes:
    records = bytearray()
    for i in range(first, first + BLOCK):
        for tag in (*METRICS, TAG):
            value = struct.pack("<BB", 10, len(tag)) + tag.encode() + struct.pack("<Bf", 21, draw.randrange(9))
            summary = struct.pack("<BB", 10, len(value)) + value
            event = struct.pack("<BdBIBB", 9, 1.7e9 + i, 21, i, 42, len(summary)) + summary
            records += struct.pack("<Q", len(event)) + b"\0\0\0\0" + event + b"\0\0\0\0"
    return bytes(records)


FORMS: dict[str, tuple[str, bytes, Callable[[int, random.Random], bytes]]] = {
    "csv": ("run.csv", b"step,lag\n", csv_block),
    "means": ("means.csv", b"step,lag\n", means_block),
    "jsonl": ("run.jsonl", b"", jsonl_block),
    "events": ("events.out.tfevents.1", b"", events_block),
}


def write(folder: Path, form: str, size: int) -> Path:
    """Write a log of about `size` bytes. Blocks repeat after the first ten, but for lags that all differ."""
    name, header, block = FORMS[form]
    draw, blocks = random.Random(0), list[bytes]()
    with (folder / name).open("wb") as stream:
        stream.write(header)
        while stream.tell() < size:
            if len(blocks) < 10 or form == "means":
                blocks = [*blocks[-9:], block(len(blocks) * BLOCK, draw)]
                stream.write(blocks[-1])
            else:
                stream.write(draw.choice(blocks))
    return folder / name


def write_trace(folder: Path, size: int) -> Path:
    """Write a trace of about `size` bytes: an in-flight pipeline's rows, over and over, as later phases."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from staleharness.pipeline.event_simulation import simulate
    from staleharness.pipeline.pipeline_rows import to_parquet
    from staleharness.pipeline.pipeline_settings import preset

    path, once = folder / "run.parquet", folder / "once.parquet"
    once.write_bytes(to_parquet(simulate(preset("in-flight", {"steps": 200}))))
    table = pq.read_table(once)
    trained = table.filter(np.asarray(table["phase"]) >= 0)
    phases = int(np.asarray(trained["phase"]).max()) + 1
    with pq.ParquetWriter(path, table.schema, compression="none") as writer:
        for turn in range(10**9):
            if path.stat().st_size >= size:
                break
            at = trained.column_names.index("phase")
            later = np.asarray(trained["phase"]) + phases * turn
            writer.write_table(
                trained.set_column(at, table.schema.field("phase"), pa.array(later, table["phase"].type))
            )
    return path


def log_files(forms: list[str], size: int) -> Iterator[tuple[str, Path]]:
    for form in forms:
        with tempfile.TemporaryDirectory() as folder:
            yield (form, write_trace(Path(folder), size) if form == "trace" else write(Path(folder), form, size))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="logs of 50 MB")
    parser.add_argument("--megabytes", type=float, default=1000.0)
    parser.add_argument("--forms", nargs="*", default=[*FORMS, "trace"], choices=[*FORMS, "trace"])
    arguments = parser.parse_args()
    size = 50.0 if arguments.quick else arguments.megabytes
    for form, path in log_files(arguments.forms, int(size * 1e6)):
        words = ("advise", "--results", str(RUNS), "--env", "Hopper", "--log", str(path))
        seconds, megabytes, text = command(*words)
        rows = re.findall(r"\(([\d,]+) (?:rows|steps)", " ".join(text.split()))[0]
        length = path.stat().st_size / 1e6
        print(
            f"{form:<8}{length:>8,.0f} MB, {rows:>11} rows {megabytes:>6.0f} MB at most, "
            f"{megabytes / length:.2f} times the file; {seconds:.0f} s",
            flush=True,
        )
        show(f"advise LOG=, {form} of {length:,.0f} MB: peak memory", [megabytes], f"<= {LIMIT:g}", "MB")


if __name__ == "__main__":
    main()
