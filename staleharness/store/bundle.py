"""What a results folder holds of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..base.parsing import parse_algorithm
from ..base.published import reference
from ..errors import UserError, nearest
from .cells import cell_of
from .store import MARKER, Store
from .stored_run import StoredRun
from .study import USUAL_LAG, Question, plain_env


@dataclass(frozen=True)
class Bundle:
    """What a results folder holds of a study."""

    path: Path
    scale: str
    runs: list[StoredRun]  # those that were asked for
    strangers: int  # runs of other cells, seeds or settings
    expected: list[dict[str, Any]]  # every run asked for, as `aggregate.table` wants it

    @property
    def complete(self) -> bool:
        return bool(self.expected) and len(self.runs) == len(self.expected)

    def of(self, labels: Sequence[str]) -> Bundle:
        """What it holds of some algorithms. Raises `UserError` where the study has no such algorithm."""
        there = {e["label"] for e in self.expected}
        for label in labels:
            if label not in there:
                raise UserError(f"only={label!r} is not in the study; {nearest(label, there)}")
        runs = [run for run in self.runs if run.label in labels]
        return replace(self, runs=runs, expected=[e for e in self.expected if e["label"] in labels])


def bundles() -> list[Path]:
    """The folders of all published bundles."""
    return [marker.parent for marker in sorted(reference().glob(f"*/{MARKER}"))]


def bundle_path(bundles: Path, study: str, scale: str) -> Path:
    return bundles / (study if scale == "small" else f"{study}_{scale}")


def read_bundle(path: Path, study: Question, scale: str) -> Bundle | None:
    """The runs of a study in a folder, or None where there is no such folder. Knows no plugin: a run is asked for
    when its algorithm's label, capacity, environment, seed, lag model and settings are the study's; what stands in
    the label's brackets is the label's."""
    if not path.is_dir():
        return None
    store = Store(path)
    store.check_readable()
    asked = study.at(scale)
    settings = {"lag": asked.lag or USUAL_LAG, **asked.settings}
    names: dict[tuple[str, int, str], str] = {(a, k, plain_env(e)): e for a, k, e in asked.cells()}
    mine, strangers, full = [], 0, {}  # full: an environment's name with its version
    for run in store.read_all():
        cell, seed = cell_of(run), run.seed
        key = (cell.label, cell.capacity, plain_env(cell.env))
        own = options_of(cell.label)
        alike = all(_same(run.spec.get(k), v) for k, v in settings.items() if k not in own)
        if key in names and seed < asked.seeds and alike:
            full[key[2]] = cell.env
            mine.append(run)
        else:
            strangers += 1
    expected = [
        {"label": a, "capacity": k, "env": full.get(plain, env), "seed": seed, "problem": None}
        for (a, k, plain), env in names.items()
        for seed in range(asked.seeds)
    ]
    return Bundle(path, scale, mine, strangers, expected)


def options_of(label: str) -> Mapping[str, Any]:
    """What stands in the brackets of an algorithm's label; N, the forward lag, stands behind them."""
    return parse_algorithm(label.partition(" N=")[0]).options if "[" in label else {}


def _same(stored: Any, asked: Any) -> bool:
    return bool(stored == (list(asked) if isinstance(asked, (list, tuple)) else asked))
