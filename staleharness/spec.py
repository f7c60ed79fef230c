"""What to run: TOML or flags in, frozen data and canonical JSON out; a run's id is a hash of its resolved spec.

A run is a pure function of its `RunSpec`. This room knows neither torch nor any plugin by name.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from .errors import UserError
from .parsing import build, canonical_json

MOST_THREADS = 1024
StepSize = Literal["constant", "ess", "inverse_lag"]
MATHS_VERSION = 1  # raised by hand when a change can move results; part of every run's id


@dataclass(frozen=True)
class RunSpec:
    """One training run. Every field is part of the run's identity."""

    env: str  # canonical environment id
    algorithm: str  # registered name
    hyper: Mapping[str, Any] = field(default_factory=dict)  # the method's own hyper-parameters, all of them
    capacity: int = 1  # K, versions in the policy buffer; 1 is on-policy
    lag: str = "uniform"  # lag model, see `lag.parse_lag`
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
    step_size: StepSize = "constant"  # beside the schedule: × √ESS of the minibatch, or ÷ its mean lag
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
        "steps": 92_160,
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
