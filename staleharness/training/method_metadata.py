"""Description of a method: its entry in `methods.toml` next to its file, and its cost."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..algorithm import Algorithm
from ..base.options import active_options
from ..base.plugins import source_file, source_hash, summary
from ..base.typed_values import build
from ..errors import UserError
from ..spec import RunSpec

OTHER = "other"  # family of methods without an entry
ANCHORS = {
    "behaviour": "the policy that acted",
    "recompute": "the learner at the start of the phase",
    "ewma": "a moving average of the learner",
}


@dataclass(frozen=True)
class MethodEntry:
    """A method's entry in `methods.toml`, which explains the fields."""

    family: str = OTHER
    level: str = ""
    transform: str = ""
    trust_region: str = ""
    anchor: str = ""
    touches: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    traps: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExtraPasses:
    """Forward passes over the data beside those that any method needs."""

    per_phase: int  # over all data of the phase
    per_step: int  # over a minibatch, at every gradient step
    by_row: bool  # whether completions go through one by one

    def __str__(self) -> str:
        counts = {"phase": self.per_phase, "gradient step": self.per_step}
        parts = [f"{n} forward per {unit}" for unit, n in counts.items() if n]
        return ", ".join(parts + ["completions one by one"] * self.by_row) or "none"


def families(cls: type[Algorithm]) -> dict[str, str]:
    """Family -> what it does with a stale decision, of the folder that the method's file lies in."""
    return dict(_read(_file(cls)).get("families", {}))


def entry_of(cls: type[Algorithm]) -> MethodEntry:
    """The method's entry; without one, the family `other` and what can be derived. Raises `UserError` for a bad one."""
    file = _file(cls)
    table = dict(_read(file).get("methods", {})).get(cls.name)
    if table is None:
        proximal = cls().proximal
        return MethodEntry(anchor="" if proximal == "behaviour" else f"π_prox, {ANCHORS[proximal]}")
    texts = {key: text for key, text in dict(_read(file).get("options", {})).items() if key in cls.hyper_parameters()}
    entry = build(
        MethodEntry, {**table, "options": {**texts, **table.get("options", {})}}, f"{file}: methods.{cls.name}"
    )
    if entry.family not in families(cls):
        names = ", ".join(families(cls)) or "none"
        raise UserError(f"{file}: methods.{cls.name} is of the family {entry.family!r}; the file has: {names}")
    return entry


def extra_passes(algorithm: Algorithm, spec: RunSpec | None = None) -> ExtraPasses:
    """Return the forward passes that the method needs beyond the one that its gradient goes through. Without a run's
    settings: on tokens, with several gradient steps per phase. On control the learner evaluates a phase's data at
    its start for every method, so that pass does not count."""
    own_targets = type(algorithm).targets is not Algorithm.targets and algorithm.realign_every != "step"
    several_steps = spec is None or spec.epochs * spec.minibatches > 1
    # a method anchors on the learner at the start of the phase, or computes its targets under it
    start = algorithm.proximal == "recompute" or (own_targets and several_steps)
    epochs = spec.epochs if spec is not None and start and algorithm.realign_every == "epoch" else 1
    return ExtraPasses(
        per_phase=0 if spec is not None and spec.scores_start else int(start) * epochs,
        per_step=int(algorithm.proximal == "ewma") + int("reference" in algorithm.needs),
        by_row=algorithm.optimal_baseline,
    )


def describe(algorithm: Algorithm, spec: RunSpec) -> dict[str, Any]:
    """Return facts for readers of results without the plugin at hand: plain data for `run.json`."""
    cls, entry = type(algorithm), entry_of(type(algorithm))
    texts = {name: getattr(entry, name) for name in ("family", "level", "transform", "trust_region", "anchor")}
    return {
        "summary": summary(cls),
        "paper": cls.paper,
        "code": source_hash(cls, active_options(algorithm)),
        **texts,
        "proximal": "" if algorithm.proximal == "behaviour" else ANCHORS[algorithm.proximal],
        "passes": str(extra_passes(algorithm, spec)),
        "needs": sorted(cls.needs),
        "touches": dict(entry.touches),
    }


def _file(cls: type[Algorithm]) -> Path:
    return Path(source_file(cls)).with_name("methods.toml")


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        return _parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # of TOML, of UTF-8
        raise UserError(f"{file} cannot be read: {error}") from error


@functools.lru_cache(maxsize=8)
def _parse(text: str) -> dict[str, Any]:
    """Parse TOML, once for all methods of a file; the result is shared and must not be changed."""
    return tomllib.loads(text)
