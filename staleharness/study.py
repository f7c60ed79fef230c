"""Request of a sweep or study: a grid of runs and their settings, from command-line options and TOML files.

Knows no plugin, so that readers of results can tell which runs a study asks for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .base.parsing import parse_assignments, parse_choice, read_toml, split_list, user_path, whole_number
from .base.plugins import builtin_folder
from .base.typed_values import build
from .errors import UserError, nearest

MAX_SEEDS = 10**9  # above what any grid takes
SCALES = ("small", "paper")
USUAL_LAG = "uniform"  # if neither question nor preset names one
LISTS = ("env", "algorithm", "capacity", "forward", "mismatch", "reuse")  # a single one may be written without brackets


@dataclass(frozen=True)
class SweepRequest:
    """Request for a sweep: a grid and settings. Also the schema of a study's file (TOML)."""

    env: tuple[str, ...] = ()
    algorithm: tuple[str, ...] = ()  # empty: the core methods; "all": all that the task supports
    capacity: tuple[int, ...] = ()
    forward: tuple[int, ...] = ()  # N, minibatches per round of a language task; empty: the preset's
    seeds: int | tuple[int, ...] = 3  # number of seeds (0, 1, ...), or a list of them
    preset: str = "quick"
    lag: str = ""  # empty: the preset's, or `USUAL_LAG`
    mismatch: tuple[str, ...] = ()  # between sampler and trainer; several: each with every method that names none
    question: str = ""
    reuse: tuple[str, ...] = ()  # other studies, whose published runs count here, too
    settings: Mapping[str, Any] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)  # replacements at the paper's own scale

    @property
    def seed_numbers(self) -> Sequence[int]:
        """Seeds of the runs. Raises `UserError` for a list that is empty, or has a duplicate or negative number."""
        if isinstance(self.seeds, int):
            return range(min(self.seeds, MAX_SEEDS))
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise UserError(f"seeds={list(self.seeds)} is not a list of different whole numbers, each 0 or above")
        return self.seeds

    def at(self, scale: str) -> SweepRequest:
        """Return the question at a scale: unchanged for `small`; for `paper` with the values of its table `[paper]`
        (settings are replaced as a whole). Raises `UserError` for an unknown scale or key, or without such a table."""
        check_scale_name(scale)
        if scale == "small":
            return replace(self, paper={})
        if not self.paper:
            raise UserError(f"SCALE=paper: the study {self.question!r} has no table [paper], which defines that scale")
        if "paper" in self.paper:
            raise UserError("[paper]: unknown option 'paper'; it holds a grid and settings only")
        paper = build(SweepRequest, _as_lists(self.paper), "[paper]")
        return replace(self, **{"settings": {}, "paper": {}, **{key: getattr(paper, key) for key in self.paper}})

    def cells(self) -> list[tuple[str, int, str]]:
        """List (algorithm, K, environment) of every cell, as the study's file names them."""
        methods: Sequence[str] = self.algorithm
        if len(self.mismatch) > 1:
            methods = [with_mismatch(a, m) for m in self.mismatch for a in self.algorithm]
        labels = [f"{a} N={n}" if len(self.forward) > 1 else a for a in methods for n in self.forward or (0,)]
        return [(label, k, env) for env in self.env for k in self.capacity or (1,) for label in labels]


NAMES = {f.name for f in fields(SweepRequest)}


def with_mismatch(method: str, mismatch: str) -> str:
    """Return the label of a method in a sweep over several mismatch models."""
    choice = parse_choice(method)
    return method if mismatch == "none" else replace(choice, options={**choice.options, "mismatch": mismatch}).label


def check_scale_name(scale: str) -> None:
    """Raise `UserError` for an unknown scale."""
    if scale not in SCALES:
        raise UserError(f"SCALE={scale!r} is unknown; {nearest(scale, SCALES)}")


def study_file(text: str) -> Path:
    """Return the path of a study as typed; a missing `experiments/...` is looked up among the built-in studies. Raises
    `UserError` if it cannot be a path."""
    path = user_path(text)
    if path.parts[:1] == ("experiments",) and not path.exists():
        return builtin_folder("experiments").joinpath(*path.parts[1:])
    return path


def read_study(path: Path) -> SweepRequest:
    """Read a study's file. Raises `UserError` naming file, key and remedy."""
    from .spec import RunSpec

    content = _as_lists(read_toml(path))
    settings, of_runs = content.get("settings"), {f.name for f in fields(RunSpec)}
    for key in content:
        if key in of_runs - NAMES - {"seed", "hyper"}:
            raise UserError(f"spec file {path}: {key} is a setting; write it under [settings]")
    for key in settings if isinstance(settings, dict) else ():
        if key in NAMES - {"mismatch"}:
            raise UserError(f"spec file {path}: {key} belongs at the top of the file, not under [settings]")
    return build(SweepRequest, content, f"spec file {path}")


def _as_lists(content: Mapping[str, Any]) -> dict[str, Any]:
    return {k: [v] if k in LISTS and not isinstance(v, list) else v for k, v in content.items()}


def sweep_request(
    env: str | None = None,
    k: str | None = None,
    algo: str | None = None,
    seeds: str | None = None,
    steps: str | None = None,
    preset: str | None = None,
    lag: str | None = None,
    n: str | None = None,
    mismatch: str | None = None,
    model: str | None = None,
    data: str | None = None,
    device: str | None = None,
    settings: str | None = None,
    spec_file: str | None = None,
    scale: str = "small",
) -> SweepRequest:
    """Combine options as typed, a study's file at a scale, and defaults, in this precedence. Raises `UserError`."""
    base = (SweepRequest() if spec_file is None else read_study(study_file(spec_file))).at(scale)
    if lag is not None and not lag.strip():
        raise UserError(f"LAG={lag!r} names nothing; leave LAG out for the default")
    values = {
        "env": _split(env, "ENV"),
        "algorithm": _split(algo, "ALGO"),
        "capacity": _whole_numbers(k, "K"),
        "forward": _whole_numbers(n, "N"),
        "seeds": None if seeds is None else _number(seeds, "SEEDS"),
        "preset": preset,
        "lag": lag,
        "mismatch": _split(mismatch, "MISMATCH"),
    }
    assignments = parse_assignments(settings or "", "SET")
    length = None if steps is None else whole_number(steps, "STEPS")
    extra = {"steps": length, "device": device, "model": model, "data": data}
    return replace(base, **_without_none(values), settings={**base.settings, **assignments, **_without_none(extra)})


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _whole_numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    parts = _split(text, option)
    return None if parts is None else tuple(_number(part, option) for part in parts)


def _split(text: str | None, option: str) -> tuple[str, ...] | None:
    """Split a list as typed; None stays None. Raises `UserError` if it is empty."""
    if text is None:
        return None
    parts = tuple(split_list(text))
    if not parts:
        remedy = "give one or several, e.g. ENV=Hopper" if option == "ENV" else f"leave {option} out for the default"
        raise UserError(f"{option}={text!r} names nothing; {remedy}")
    return parts


def _number(text: str, option: str) -> int:
    """Parse a whole number of an option that takes several. Raises `UserError`, which says how to write several."""
    try:
        return whole_number(text, option)
    except UserError as error:
        is_list = len(re.findall(r"\d+(?:\.\d+)?", text)) > 1
        raise UserError(f"{error}; write several with commas, {option}=1,2,3" if is_list else str(error)) from None


def without_version(env: str) -> str:
    """Return the name of an environment without its version."""
    return re.sub(r"-v\d+$", "", env)


def plain_env(env: str) -> str:
    """Return the name of an environment without its version, in lower case."""
    return without_version(env).lower()
