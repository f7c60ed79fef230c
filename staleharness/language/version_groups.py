"""Rows of completions grouped by the version that generates them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ..training.policy_buffer import PolicyBuffer, Version
from .batched_generation import GrowingBatch

NO_VERSION = -1  # of rows before their first token, and of those that have ended


def batches(
    groups: Sequence[NDArray[np.int64]], versions: NDArray[np.int64], parallel: int, max_rows: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the rows of each batch: of at most `parallel` versions at a time and `max_rows` rows, 0: any.

    groups: rows of the same versions; versions [B, S]: those of all rows in each segment.
    """
    part: list[NDArray[np.int64]] = []
    acting: list[set[int]] = []  # versions of the part in each segment
    for group in groups:
        sequence = versions[group[0]].tolist()
        with_group = [{*old, version} for old, version in zip(acting, sequence, strict=True)] if part else []
        if part and (max(map(len, with_group)) > parallel or len(part) == max_rows):
            yield from _pieces(part, max_rows)
            part = []
        acting = with_group if part else [{version} for version in sequence]
        part = [*part, group]
    yield from _pieces(part, max_rows)


def _pieces(groups: list[NDArray[np.int64]], max_rows: int) -> Iterator[NDArray[np.int64]]:
    """Yield pieces of at most `max_rows` rows, each with as many rows of a group as of any other, if it has them."""
    lengths = np.array([len(group) for group in groups])
    size = longest = int(lengths.max())
    while max_rows and size > 1 and np.minimum(lengths, size).sum() > max_rows:
        size -= 1
    for begin in range(0, longest, size):
        yield np.concatenate([group[begin : begin + size] for group in groups])


def join_segments(
    spans: Sequence[tuple[int, int]], versions: NDArray[np.int64]
) -> list[tuple[int, int, NDArray[np.int64]]]:
    """Return (first token, end, versions [B]) of segments, given those of a request [B, S]; neighbours in which no row
    changes its version are merged."""
    segments: list[tuple[int, int, NDArray[np.int64]]] = []
    for (first, last), column in zip(spans, versions.T, strict=True):
        if segments and np.array_equal(column, segments[-1][2]):
            segments[-1] = segments[-1][0], last, column
        else:
            segments.append((first, last, column))
    return segments


def first_numbers_of(
    versions: NDArray[np.int64], buffer: PolicyBuffer, first_numbers: dict[int, tuple[Version, int]]
) -> NDArray[np.int64]:
    """Return versions [B], each under its first number, and add new ones to `first_numbers`, by identity.

    Actor processes number versions by segment, and one that did not change needs no new cache.
    """
    numbers, position = np.unique(versions, return_inverse=True)
    for i, number in enumerate(numbers.tolist()):
        version = buffer[number]
        numbers[i] = first_numbers.setdefault(id(version), (version, number))[1]
    return numbers[position]


def regroup(
    batches: dict[int, GrowingBatch], versions: NDArray[np.int64]
) -> tuple[dict[int, GrowingBatch], dict[int, GrowingBatch]]:
    """Return, by version, the rows that stay with theirs and those that move to another, given the versions [B] of all
    rows from here on. Rows that have ended go to the output."""
    staying: dict[int, GrowingBatch] = {}
    arriving: dict[int, GrowingBatch] = {}
    for old, batch in batches.items():
        targets = np.where(batch.ended.numpy(), NO_VERSION, versions[batch.index.numpy()])
        for new in np.setdiff1d(targets, (old, NO_VERSION)).tolist():
            part = batch.split(torch.from_numpy(np.flatnonzero(targets == new)))
            if new in arriving:
                arriving[new].join(part)
            else:
                arriving[new] = part
        rows = np.flatnonzero((targets == old) & (targets != NO_VERSION))
        if len(rows) == 0:
            batch.result()
            continue
        if len(rows) < len(targets):
            batch.select(torch.from_numpy(rows))
        staying[old] = batch
    return staying, arriving
