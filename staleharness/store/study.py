"""A study: which runs answer a question. Flags and TOML in, frozen data out; knows no plugin, so that whoever reads
results can tell what was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ..base.files import user_path
from ..base.parsing import build, parse_assignments, read_toml, split_list, whole_number
from ..base.plugins import builtin_folder
from ..errors import UserError, nearest

SCALES = ("small", "paper")
USUAL_LAG = "uniform"  # where neither question nor preset names one
LISTS = ("env", "algorithm", "capacity", "forward")  # one of them may be written without brackets


@dataclass(frozen=True)
class Question:
    """A sweep as asked: a grid and settings. Also the shape of a study's file (TOML)."""

    env: tuple[str, ...] = ()
    algorithm: tuple[str, ...] = ()  # empty: the core methods; "all": every one that the task can serve
    capacity: tuple[int, ...] = ()
    forward: tuple[int, ...] = ()  # N, minibatches per round of a language task; empty: the preset's
    seeds: int = 3
    preset: str = "quick"
    lag: str = ""  # empty: the preset's, or `USUAL_LAG`
    question: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)  # what is asked instead at the paper's own scale

    def at(self, scale: str) -> Question:
        """The question at a scale: as it is for `small`; for `paper` with what its table `[paper]` replaces
        (settings as a whole). Raises `UserError` for an unknown scale or key, or where no such table exists."""
        check_scale_name(scale)
        if scale == "small":
            return replace(self, paper={})
        if not self.paper:
            raise UserError(f"SCALE=paper: the study {self.question!r} has no table [paper] that says what that is")
        if "paper" in self.paper:
            raise UserError("[paper]: unknown option 'paper'; it holds a grid and settings only")
        given = build(Question, _listed(self.paper), "[paper]")
        kept = {f.name: getattr(self, f.name) for f in fields(Question) if f.name not in ("settings", "paper")}
        return Question(**{**kept, **{key: getattr(given, key) for key in self.paper}})

    def cells(self) -> list[tuple[str, int, str]]:
        """(algorithm, K, environment) of every cell, as the study's file names them."""
        several = len(self.forward) > 1
        labels = [f"{a} N={n}" if several else a for a in self.algorithm for n in self.forward or (0,)]
        return [(label, k, env) for env in self.env for k in self.capacity or (1,) for label in labels]


def check_scale_name(scale: str) -> None:
    """Raise `UserError` for a scale that is none."""
    if scale not in SCALES:
        raise UserError(f"SCALE={scale!r} is unknown; {nearest(scale, SCALES)}")


def study_file(text: str) -> Path:
    """A path as typed; what is named `experiments/...` and is not here is looked for among the built-in studies.
    Raises `UserError` where it cannot be a path."""
    path = user_path(text)
    if path.parts[:1] == ("experiments",) and not path.exists():
        return builtin_folder("experiments").joinpath(*path.parts[1:])
    return path


def read_study(path: Path) -> Question:
    """A study's file. Raises `UserError` naming file, key and remedy."""
    return build(Question, _listed(read_toml(path)), f"spec file {path}")


def _listed(content: Mapping[str, Any]) -> dict[str, Any]:
    return {k: [v] if k in LISTS and not isinstance(v, list) else v for k, v in content.items()}


def ask(
    env: str | None = None,
    k: str | None = None,
    algo: str | None = None,
    seeds: str | None = None,
    steps: str | None = None,
    preset: str | None = None,
    lag: str | None = None,
    n: str | None = None,
    model: str | None = None,
    data: str | None = None,
    device: str | None = None,
    settings: str | None = None,
    spec_file: str | None = None,
    scale: str = "small",
) -> Question:
    """Flags (as typed) over a study's file at a scale over defaults. Raises `UserError`."""
    base = (Question() if spec_file is None else read_study(study_file(spec_file))).at(scale)
    asked = {f.name: getattr(base, f.name) for f in fields(Question)}
    if env is not None:
        asked["env"] = _named(env, "ENV")
    if algo is not None:
        asked["algorithm"] = _named(algo, "ALGO")
    if k is not None:
        asked["capacity"] = tuple(whole_number(part, "K") for part in _named(k, "K"))
    if n is not None:
        asked["forward"] = tuple(whole_number(part, "N") for part in _named(n, "N"))
    if seeds is not None:
        asked["seeds"] = whole_number(seeds, "SEEDS")
    if preset is not None:
        asked["preset"] = preset
    if lag is not None:
        if not lag.strip():
            raise UserError(f"LAG={lag!r} names nothing; leave LAG out for the default")
        asked["lag"] = lag
    extra = dict(asked["settings"])
    if settings is not None:
        extra |= parse_assignments(settings, "SET")
    if steps is not None:
        extra["steps"] = whole_number(steps, "STEPS")
    for key, value in (("device", device), ("model", model), ("data", data)):
        if value is not None:
            extra[key] = value
    asked["settings"] = extra
    return Question(**asked)


def _named(text: str, what: str) -> tuple[str, ...]:
    """The parts of a list that names at least one thing."""
    parts = tuple(split_list(text))
    if not parts:
        remedy = "give one or several, e.g. ENV=Hopper" if what == "ENV" else f"leave {what} out for the default"
        raise UserError(f"{what}={text!r} names nothing; {remedy}")
    return parts


def plain_env(env: str) -> str:
    """An environment as people name it: without its version, in lower case."""
    return re.sub(r"-v\d+$", "", env).lower()
