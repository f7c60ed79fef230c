"""Runs like the one that is asked for, made before: what it will take is told from what they took."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..base.files import stamp
from ..spec import RunSpec
from ..store.store import Store
from ..store.stored_run import StoredRun
from ..store.study_runs import published_bundles


@dataclass(frozen=True)
class Precedents:
    where: str  # `stored` or `published`
    count: int
    speed: float  # steps per second, evaluation included
    memory: int  # bytes that one took at most
    checkpoint: int = 0  # bytes of the largest checkpoint; 0: nobody wrote it down


def precedents(spec: RunSpec, store: Store) -> Precedents | None:
    """What the runs like it in `store` took, or where there are none those of the bundles; None: nobody knows."""
    like = tuple((key, getattr(spec, key)) for key in spec.alike)
    return _stored(store.root, _state(store.root), like) or _of("published", _published(), like)


@functools.lru_cache(64)
def _stored(root: Path, state: object, like: tuple[tuple[str, Any], ...]) -> Precedents | None:
    """state: changes when a run comes or goes."""
    return _of("stored", Store(root).read_all(), like)


def _state(root: Path) -> object:
    return tuple(stamp(path) for path in (root / "runs", root / "runs.parquet") if path.exists())


def _of(where: str, runs: Iterable[StoredRun], like: tuple[tuple[str, Any], ...]) -> Precedents | None:
    found = [run.record for run in runs if all(run.spec.get(key) == value for key, value in like)]
    seconds, steps = sum(r["seconds"]["total"] for r in found), sum(r["steps"] for r in found)
    if steps < 1 or not 0 < seconds < math.inf:
        return None
    memory, checkpoint = (_most(found, key) for key in ("peak_memory", "checkpoint_bytes"))
    return Precedents(where, len(found), steps / seconds, memory, checkpoint)


def _most(records: Iterable[dict[str, Any]], key: str) -> int:
    return max((record.get(key, 0) for record in records), default=0)


@functools.cache
def _published() -> list[StoredRun]:
    return [run for folder in published_bundles() for run in Store(folder).read_all()]
