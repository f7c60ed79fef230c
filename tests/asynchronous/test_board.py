"""Weights go from one process to others whole: never half of one version and half of another."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection

import torch
from toy_actors import version

from staleharness.asynchronous.board import Board

LARGE = 300_000  # numbers: long enough to copy that a writer comes in between


def read(board: Board, channel: Connection, seconds: float) -> None:
    """Read for some time, on a busy machine until it was a race; (reads, versions seen, reads whose numbers were not
    all of one version, steps back)."""
    torch.set_num_threads(1)
    channel.send("ready")
    reads, torn, back, last = 0, 0, 0, -1
    seen = set()
    until = time.monotonic() + seconds
    while (now := time.monotonic()) < until or (now < until + 60 and (reads <= 20 or len(seen) <= 5)):
        found = board.newest()
        numbers = {*found.tensors["weights"].unique().tolist(), *found.tensors["count"].flatten().tolist()}
        odd = found.tensors["flag"].unique().tolist()
        torn += (
            numbers != {found.phase}
            or odd != [found.phase % 2 == 1]
            or found.gradient_step != 10 * found.phase
        )
        back += found.phase < last
        last = found.phase
        reads += 1
        seen.add(found.phase)
    channel.send((reads, len(seen), torn, back))


def test_no_reader_ever_sees_a_torn_version() -> None:
    context = multiprocessing.get_context("forkserver")
    board = Board(context, version(0, LARGE))
    board.publish(version(0, LARGE))
    versions = [version(phase, LARGE) for phase in range(64)]
    here, there = context.Pipe()
    process = context.Process(target=read, args=(board, there, 2.0), daemon=True)
    process.start()
    assert here.recv() == "ready"
    phase = 0
    while not here.poll():
        phase += 1
        content = versions[phase % 64]
        content = type(content)(phase % 64, 10 * (phase % 64), content.tensors)
        board.publish(content)
    reads, seen, torn, _ = here.recv()
    process.join()
    assert torn == 0
    assert reads > 20 and seen > 5 and phase > 100, "nobody raced"


def test_a_version_is_read_as_it_was_published() -> None:
    context = multiprocessing.get_context("forkserver")
    board = Board(context, version(0))
    for phase in (0, 3, 7):
        board.publish(version(phase))
        found, expected = board.newest(), version(phase)
        assert (found.phase, found.gradient_step, board.newest_phase) == (phase, 10 * phase, phase)
        for name, tensor in expected.tensors.items():
            assert torch.equal(found.tensors[name], tensor) and found.tensors[name].dtype == tensor.dtype
    kept = board.newest()
    board.publish(version(9)), board.publish(version(10))
    assert float(kept.tensors["weights"][0]) == 7.0, "a copy does not change under its reader's hands"
