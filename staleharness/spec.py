"""What to run: TOML or flags in, frozen data and canonical JSON out; a run's id is a hash of its resolved spec.

A run is a pure function of its `RunSpec`. This room knows neither torch nor any plugin by name.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import sys
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from .errors import UserError, nearest, shortened

LARGEST = 2**63 - 1  # of a whole number, so that every format can hold it
MOST_THREADS = 1024
MATHS_VERSION = 1  # raised by hand when a change can move results; part of every run's id

D = TypeVar("D")


@dataclass(frozen=True)
class RunSpec:
    """One training run. Every field is part of the run's identity."""

    env: str  # canonical environment id
    algorithm: str  # registered name
    hyper: Mapping[str, Any] = field(default_factory=dict)  # the method's own hyper-parameters, all of them
    capacity: int = 1  # K, versions in the policy buffer; 1 is on-policy
    lag: str = "uniform"  # lag model: uniform | fixed:<l>
    seed: int = 0
    steps: int = 100_352  # environment steps of training; evaluation is counted apart

    # collection
    num_envs: int = 16
    num_steps: int = 128  # per environment and phase
    mechanism: Literal["reexecute", "replay"] = (
        "reexecute"  # past policies act anew, or their stored data return
    )
    assignment: Literal["phase", "episode"] = "phase"  # how long an actor keeps the version it was given
    density: Literal["component", "mixture"] = "component"  # what the behaviour log-probability refers to
    observation_statistics: Literal["snapshot", "shared_live", "frozen"] = "snapshot"
    reset_each_phase: bool = False

    # learning, shared by all algorithms
    epochs: int = 10
    minibatches: int = 8
    learning_rate: float = 3e-4
    anneal_learning_rate: bool = True  # linearly to zero over the phases
    adam_epsilon: float = 1e-5
    discount: float = 0.99  # γ
    gae_lambda: float = 0.95  # λ
    bootstrap_truncation: bool = True  # False: a time limit counts as a termination (CleanRL)
    normalise_advantage: bool = True  # per minibatch
    scale_rewards: bool = True  # by the running standard deviation of the discounted return
    value_coef: float = 0.5
    value_clip: float = 0.2  # around the learner's value at the start of the phase; 0 is off
    entropy_coef: float = 0.0
    max_grad_norm: float = 0.5  # actor and critic together
    hidden: tuple[int, ...] = (64, 64)

    # evaluation: the newest policy, frozen statistics, fixed seeds
    evaluations: int = 10  # points on the learning curve, the final one included
    evaluation_episodes: int = 5  # sampled and as many deterministic, at each point but the last
    final_episodes: int = 20  # sampled and as many deterministic, at the end

    # machine
    device: str = "cpu"
    threads: int = 1  # of torch and of the physics; bits depend on it

    def __post_init__(self) -> None:
        positive = (
            "capacity steps num_envs num_steps epochs minibatches learning_rate max_grad_norm "
            "evaluations evaluation_episodes final_episodes threads adam_epsilon"
        )
        for name in positive.split():
            if not getattr(self, name) > 0:
                raise UserError(f"{name}={getattr(self, name)} must be positive")
        for name in ("discount", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name}={getattr(self, name)} must lie in [0, 1]")
        for name in ("value_coef", "value_clip", "entropy_coef", "seed"):
            if getattr(self, name) < 0:
                raise UserError(f"{name}={getattr(self, name)} must not be negative")
        if self.threads > MOST_THREADS:
            raise UserError(f"threads={self.threads} is more than {MOST_THREADS}")
        if not self.hidden or any(width < 1 for width in self.hidden):
            raise UserError(f"hidden={list(self.hidden)} must be a list of positive layer widths")
        if self.steps < self.batch_size:
            raise UserError(
                f"STEPS={self.steps} is less than one phase: {self.num_envs} environments x {self.num_steps} steps "
                f"= {self.batch_size}"
            )
        if self.minibatches > self.batch_size:
            raise UserError(
                f"minibatches={self.minibatches} exceeds the {self.batch_size} decisions of a phase"
            )

    @property
    def batch_size(self) -> int:
        """Decisions per phase."""
        return self.num_envs * self.num_steps

    @property
    def phases(self) -> int:
        """Whole phases that fit in `steps`."""
        return self.steps // self.batch_size

    def evaluation_phases(self) -> list[int]:
        """Phases after which the policy is evaluated; evenly spaced, the last one included."""
        count = min(self.evaluations, self.phases)
        return sorted({(i + 1) * self.phases // count - 1 for i in range(count)})

    def to_dict(self) -> dict[str, Any]:
        plain = dataclasses.asdict(self)
        return {**plain, "hyper": dict(self.hyper), "hidden": list(self.hidden)}

    def to_json(self) -> str:
        return canonical_json(self.to_dict())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "run spec") -> RunSpec:
        """Strict: an unknown key or a wrong type is a `UserError` naming the nearest key."""
        return build(cls, values, where)

    def run_id(self, algorithm_hash: str, env_hash: str) -> str:
        """12 hex digits. The plugins' own files count, so editing `spo.py` expires SPO's runs and no others."""
        identity = {
            "spec": self.to_dict(),
            "maths": MATHS_VERSION,
            "algorithm_file": algorithm_hash,
            "env_file": env_hash,
        }
        return hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:12]


COMMON = "env algorithm hyper capacity lag seed".split()
SETTINGS = [f.name for f in fields(RunSpec) if f.name not in COMMON]

PRESETS: dict[str, dict[str, Any]] = {
    # a first look: minutes on two cores
    "quick": {
        "steps": 122_880,
        "num_envs": 16,
        "num_steps": 128,
        "epochs": 10,
        "minibatches": 8,
        "evaluations": 6,
    },
    # a study: 488 phases, comparable with 1M-step results elsewhere
    "standard": {
        "steps": 999_424,
        "num_envs": 16,
        "num_steps": 128,
        "epochs": 10,
        "minibatches": 8,
        "evaluations": 20,
    },
    # Table 1 of VACO (arXiv 2603.01365)
    "paper": {
        "steps": 100_000_000,
        "num_envs": 500,
        "num_steps": 1000,
        "epochs": 10,
        "minibatches": 32,
        "learning_rate": 3e-4,
        "discount": 0.99,
        "evaluations": 50,
        "threads": 2,
    },
}


@dataclass(frozen=True)
class AlgorithmChoice:
    """An algorithm as the user named it: `vaco` or `vaco[delta=0.1,trust_region=clip]`."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`name`, or `name[option=value,...]` with the options sorted."""
        inside = ",".join(f"{key}={_plain(value)}" for key, value in sorted(self.options.items()))
        return f"{self.name}[{inside}]" if inside else self.name


def parse_algorithm(text: str) -> AlgorithmChoice:
    """Parse `name` or `name[option=value,...]`. Values are read as TOML where possible, otherwise as text.

    Raises `UserError` for anything else, and for an option given twice.
    """
    match = re.fullmatch(r"\s*([\w.-]+)\s*(?:\[(.*)\])?\s*", text)
    if match is None:
        raise UserError(f"ALGO={text!r} is not name or name[option=value,...]")
    return AlgorithmChoice(match.group(1), parse_assignments(match.group(2) or "", f"ALGO={text!r}"))


def parse_assignments(text: str, where: str) -> dict[str, Any]:
    """`key=value,key=value` -> {key: value}. Raises `UserError` for a key given twice."""
    found: dict[str, Any] = {}
    for part in split_list(text):
        key, value = parse_assignment(part, where)
        if key in found:
            raise UserError(f"{where} gives {key} more than once")
        found[key] = value
    return found


def parse_assignment(text: str, where: str) -> tuple[str, Any]:
    """`key=value` -> (key, value), the value read as a TOML value or else as text."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not value.strip():
        raise UserError(f"{where}: {text!r} is not option=value")
    return key.strip(), parse_value(value.strip())


def parse_value(text: str) -> Any:
    """`text` as a TOML value where it is one, otherwise as text."""
    if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)[eE][+-]?\d+", text):
        return float(text)  # TOML wants digits after the point; people write 1e-3
    try:
        content = tomllib.loads(f"value = {text}")
    except (tomllib.TOMLDecodeError, ValueError):  # ValueError: more digits than Python converts
        return text
    return content["value"] if len(content) == 1 else text  # a line break would begin a second key


def split_list(text: str) -> list[str]:
    """Split at commas and white space, but not inside brackets: `a,b[c=1,d=2] e` -> three parts."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if depth < 0:
            break
        if depth == 0 and (character == "," or character.isspace()):
            parts.append("")
        else:
            parts[-1] += character
    if depth != 0:
        raise UserError(f"{text!r} has a bracket without its pair; write name[option=value,...]")
    return [part for part in parts if part]


def whole_number(text: str, what: str) -> int:
    """A whole number as people type it: `8`, `1_000_000`, `1e6`. Raises `UserError` naming `what`."""
    cleaned = text.strip().replace("_", "")
    if not re.fullmatch(r"[+-]?\d+(e\+?\d{1,2})?", cleaned, re.ASCII | re.IGNORECASE):
        raise UserError(f"{what}={shortened(text)!r} is not a whole number")
    mantissa, _, zeros = cleaned.lower().partition("e")
    number: int = int(mantissa[:30]) * 10 ** int(zeros or 0)
    if len(mantissa) > 30 or abs(number) > LARGEST:
        raise UserError(f"{what}={shortened(text)} is too large; at most {LARGEST}")
    return number


def build(cls: type[D], values: Mapping[str, Any], where: str) -> D:
    """Make a frozen dataclass from plain data, strictly. Raises `UserError` naming key, place and remedy."""
    hints = typing.get_type_hints(cls)
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            raise UserError(f"{where}: unknown option {key!r}; {nearest(key, known)}")
        checked[key] = convert(value, hints[key], f"{where}: {key}")
    return cls(**checked)


def convert(value: Any, hint: Any, where: str) -> Any:
    """`value` as the annotated type, or a `UserError`. Never changes what was meant: 1e6 is a whole number, 0.5 is
    not, and what is not finite is no number."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool) != isinstance(arguments[0], bool):
            choices = [str(a) for a in arguments]
            raise UserError(f"{where}={_plain(value)} is not one of {', '.join(choices)}")
        return value
    if origin in (typing.Union, types.UnionType):
        for option in arguments:
            try:
                return convert(value, option, where)
            except UserError:
                continue
    if hint is type(None) and (value is None or value == "none"):
        return None
    if hint is bool and isinstance(value, bool):
        return value
    if hint in (int, float) and isinstance(value, (int, float)) and not isinstance(value, bool):
        if not abs(value) <= (LARGEST if hint is int else sys.float_info.max):  # NaN is not either
            raise UserError(f"{where}={shortened(_plain(value))} is not finite, or too large")
        if hint is float or value == int(value):
            return hint(value)
    if hint is str and isinstance(value, str):
        return value
    if origin is tuple and isinstance(value, (list, tuple)):
        return tuple(convert(item, arguments[0], where) for item in value)
    if (origin in (dict, Mapping) or origin is typing.get_origin(Mapping[str, Any])) and isinstance(
        value, Mapping
    ):
        return dict(value)
    name = getattr(hint, "__name__", str(hint)) if origin is None else str(hint)
    raise UserError(f"{where}={shortened(_plain(value))} is not of type {name}")


def canonical_json(content: Any) -> str:
    """Sorted keys, no white space, no NaN."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file as plain data; a missing or broken file is a `UserError` with the place."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"spec file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # of TOML, of UTF-8, of a number with too many digits
        raise UserError(f"spec file {path} is not TOML: {error}") from error


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else json.dumps(value, default=str)
