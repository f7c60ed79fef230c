"""What to run: TOML or flags in, frozen data and canonical JSON out; a run's id is a hash of its resolved spec.

A run is a pure function of its `RunSpec`. This room knows neither torch nor any plugin by name.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

from .errors import UserError
from .parsing import build, canonical_json

MOST_THREADS = 1024
PROBE_STEPS = 4_096  # environment steps
StepSize = Literal["constant", "ess", "inverse_lag"]
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
MATHS_VERSION = 1  # raised by hand when a change can move results; part of every run's id


def later(default: Any, *, before: Any) -> Any:
    """A field of a spec that runs exist without: it is part of the id unless its value is `before`, the one that
    means what those runs did. The default may change, `before` may not."""
    return field(default=default, metadata={"before": before})


@dataclass(frozen=True)
class RunSpec:
    """One training run: what control and language have in common. Every field is part of the run's identity; one that
    is added now is written `name: type = later(...)`, so that the runs that are there keep their names."""

    env: str  # canonical environment id
    algorithm: str  # registered name
    hyper: Mapping[str, Any] = field(default_factory=dict)  # the method's own hyper-parameters, all of them
    capacity: int = 1  # K, versions in the policy buffer; 1 is on-policy
    lag: str = "uniform"  # lag model, see `lag.parse_lag`
    seed: int = 0
    steps: int = 1  # of training, in the unit of the kind of task; evaluation is counted apart

    # learning, shared by all algorithms
    epochs: int = 1
    minibatches: int = 1  # gradient steps per epoch and phase
    learning_rate: float = 3e-4
    anneal_learning_rate: bool = True  # linearly to zero over the phases
    adam_epsilon: float = 1e-5
    discount: float = 0.99  # γ
    gae_lambda: float = 0.95  # λ
    normalise_advantage: bool = True  # per minibatch
    entropy_coef: float = 0.0
    max_grad_norm: float = 0.5
    step_size: StepSize = "constant"  # beside the schedule: × √ESS of the minibatch, or ÷ its mean lag

    evaluations: int = 10  # points on the learning curve, the final one included

    # machine
    device: str = "cpu"
    threads: int = 1  # of torch and of the physics; bits depend on it

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    unit: ClassVar[str] = "steps"  # what `steps` counts, in words
    alike: ClassVar[tuple[str, ...]] = ("env", "threads", "device")  # settings that runs of one speed share
    positive: ClassVar[str] = (
        "capacity steps epochs minibatches learning_rate max_grad_norm evaluations threads"
    )

    def __post_init__(self) -> None:
        for name in (*self.positive.split(), "adam_epsilon"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name}={getattr(self, name)} must be positive")
        for name in ("discount", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name}={getattr(self, name)} must lie in [0, 1]")
        for name in ("entropy_coef", "seed"):
            if getattr(self, name) < 0:
                raise UserError(f"{name}={getattr(self, name)} must not be negative")
        if self.threads > MOST_THREADS:
            raise UserError(f"threads={self.threads} is more than {MOST_THREADS}")

    @property
    def steps_per_phase(self) -> int:
        """How much of `steps` one phase uses up."""
        raise NotImplementedError

    @property
    def phases(self) -> int:
        """Whole phases that fit in `steps`."""
        return self.steps // self.steps_per_phase

    @property
    def size(self) -> str:
        """The few numbers that say how big a run is."""
        raise NotImplementedError

    def probe(self) -> RunSpec:
        """The same work in a few phases, to measure its speed."""
        raise NotImplementedError

    def evaluation_phases(self) -> list[int]:
        """Phases after which the policy is evaluated; evenly spaced, the last one included."""
        count = min(self.evaluations, self.phases)
        return sorted({(i + 1) * self.phases // count - 1 for i in range(count)})

    def to_dict(self) -> dict[str, Any]:
        plain = dataclasses.asdict(self)
        return {key: list(v) if isinstance(v, tuple) else v for key, v in plain.items()} | {
            "hyper": dict(self.hyper)
        }

    def to_json(self) -> str:
        return canonical_json(self.to_dict())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "run spec") -> Self:
        """Strict: an unknown key or a wrong type is a `UserError` naming the nearest key."""
        return build(cls, values, where)

    @classmethod
    def settings(cls) -> list[str]:
        """The fields that are not an axis of a sweep."""
        return [f.name for f in fields(cls) if f.name not in COMMON]

    def run_id(self, algorithm_hash: str, env_hash: str) -> str:
        """12 hex digits. The plugins' own files count, so editing `spo.py` expires SPO's runs and no others."""
        as_before = {
            f.name
            for f in fields(self)
            if "before" in f.metadata and getattr(self, f.name) == f.metadata["before"]
        }
        identity = {
            "spec": {key: value for key, value in self.to_dict().items() if key not in as_before},
            "maths": MATHS_VERSION,
            "algorithm_file": algorithm_hash,
            "env_file": env_hash,
        }
        return hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class ControlSpec(RunSpec):
    """A run on a vector of gymnasium environments; `steps` counts environment steps."""

    steps: int = 100_352

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

    # learning
    epochs: int = 10
    minibatches: int = 8
    bootstrap_truncation: bool = True  # False: a time limit counts as a termination (CleanRL)
    scale_rewards: bool = True  # by the running standard deviation of the discounted return
    value_coef: float = 0.5
    value_clip: float = 0.2  # around the learner's value at the start of the phase; 0 is off
    max_grad_norm: float = 0.5  # actor and critic together
    hidden: tuple[int, ...] = (64, 64)

    # evaluation: the newest policy, frozen statistics, fixed seeds
    evaluation_episodes: int = 5  # sampled and as many deterministic, at each point but the last
    final_episodes: int = 20  # sampled and as many deterministic, at the end

    unit: ClassVar[str] = "environment steps"
    alike: ClassVar[tuple[str, ...]] = (
        *RunSpec.alike, "num_envs", "num_steps", "epochs", "minibatches",
    )  # fmt: skip
    positive: ClassVar[str] = f"{RunSpec.positive} num_envs num_steps evaluation_episodes final_episodes"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
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

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("value_coef", "value_clip"):
            if getattr(self, name) < 0:
                raise UserError(f"{name}={getattr(self, name)} must not be negative")
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
    def steps_per_phase(self) -> int:
        return self.batch_size

    @property
    def size(self) -> str:
        return (
            f"{self.phases} phases of {self.num_envs} x {self.num_steps} steps = {self.phases * self.batch_size:,} "
            f"steps, {self.epochs} epochs x {self.minibatches} minibatches"
        )

    def probe(self) -> ControlSpec:
        """Three phases with rows as wide as asked but no longer than needed."""
        length = max(1, min(self.num_steps, PROBE_STEPS // self.num_envs))
        small = min(self.minibatches, self.num_envs * length)
        steps = 3 * self.num_envs * length
        return dataclasses.replace(self, num_steps=length, steps=steps, minibatches=small, evaluations=1)


@dataclass(frozen=True)
class LanguageSpec(RunSpec):
    """A run on prompts with verifiable answers; `steps` counts optimiser steps.

    One phase is a generation round: `minibatches` (N, the forward lag) minibatches of `prompts` × `completions`
    are generated with the versions that the lag model assigns, then trained on one after the other.
    """

    steps: int = 256

    # the task
    model: str = ""  # a hub name or a folder; empty: the task's own
    data: str = ""  # a folder with train.jsonl and test.jsonl; empty: the task's own
    model_digest: str = ""  # of the files in the model's folder, filled in when a run is planned
    data_digest: str = ""
    prompt_format: str = ""  # by name; empty: the task's own
    chat_template: bool = False  # the prompt as one user turn of the model's chat template (instruct models)
    extractor: str = ""  # how the answer is read from a completion, by name; empty: the prompt format's

    # generation, at temperature 1 without truncation of the distribution
    prompts: int = 32  # per minibatch
    completions: int = 8  # per prompt
    prompt_tokens: int = 512  # longest prompt
    long_prompts: Literal["refuse", "drop"] = "refuse"  # drop: the problems are left out, and counted
    completion_tokens: int = 512  # longest completion
    versions: Literal["full", "lora"] = "full"  # what a version is: all weights, or a LoRA adapter
    lora_rank: int = 32
    lora_alpha: float = 32.0
    kv_cache: Literal["recompute", "keep"] = "recompute"  # where weights change inside a sequence

    # advantage and loss
    baseline: Literal["grpo", "dr_grpo", "rloo", "none"] = "grpo"  # of the reward, per group
    dynamic_sampling: bool = False  # only groups with some but not all correct (DAPO); others are counted
    aggregation: Aggregation = "token-mean"
    mask_truncated: bool = False  # completions cut at the limit teach nothing; otherwise graded as they are
    weight_decay: float = 0.0

    # learning
    learning_rate: float = 1e-6
    anneal_learning_rate: bool = False
    adam_epsilon: float = 1e-8
    discount: float = 1.0
    gae_lambda: float = 1.0
    normalise_advantage: bool = False  # the baseline has done it
    max_grad_norm: float = 1.0

    # evaluation: greedy completions of test problems
    evaluations: int = 8
    evaluation_problems: int = 0  # the first so many of the test split; 0: all

    # machine
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the arithmetic; weights and optimiser stay float32
    gradient_checkpointing: bool = False
    micro_batch: int = 0  # completions in one forward pass; 0: as many as memory allows, all on a CPU

    unit: ClassVar[str] = "optimiser steps"
    alike: ClassVar[tuple[str, ...]] = (
        *RunSpec.alike, "model", "prompts", "completions", "completion_tokens", "minibatches", "dtype", "versions",
    )  # fmt: skip
    positive: ClassVar[str] = (
        f"{RunSpec.positive} prompts completions prompt_tokens completion_tokens lora_rank lora_alpha"
    )
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "quick": {},
        "standard": {"evaluations": 16},
        # Table 2 of VACO (arXiv 2603.01365): 65,536 episodes in 256 steps
        "paper": {
            "steps": 256,
            "prompts": 32,
            "completions": 8,
            "prompt_tokens": 512,
            "completion_tokens": 512,
            "learning_rate": 1e-6,
            "hyper": {"ppo_clip": {"clip": 0.2, "clip_high": 0.272}, "vaco": {"delta": 0.05}},
            "dtype": "bfloat16",
            "gradient_checkpointing": True,
        },
        # Setup 1 of A-3PO (arXiv 2512.06547): Qwen2.5-1.5B-Instruct on GSM8K, 4 minibatches of 256 prompts in all
        "a3po": {
            "steps": 256,
            "minibatches": 4,
            "prompts": 64,
            "completions": 4,
            "completion_tokens": 1024,
            "learning_rate": 8.5e-6,
            "chat_template": True,
            "dtype": "bfloat16",
            "gradient_checkpointing": True,
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("weight_decay", "evaluation_problems", "micro_batch"):
            if getattr(self, name) < 0:
                raise UserError(f"{name}={getattr(self, name)} must not be negative")
        if self.steps % self.steps_per_phase:
            n = self.steps_per_phase
            below = self.steps // n * n
            near = f"{below} or {below + n}" if below else f"{n}"
            raise UserError(
                f"STEPS={self.steps} is not whole generation rounds of {n} optimiser steps; give {near}"
            )
        if self.completions == 1 and self.baseline != "none":
            raise UserError(
                f"completions=1 leaves the {self.baseline} baseline nothing to compare with; "
                "give at least 2, or baseline=none"
            )
        if self.dynamic_sampling and self.completions == 1:
            raise UserError("dynamic_sampling needs groups: completions must be at least 2")

    @property
    def steps_per_phase(self) -> int:
        return self.minibatches * self.epochs

    @property
    def sequences(self) -> int:
        """Completions per minibatch."""
        return self.prompts * self.completions

    @property
    def size(self) -> str:
        return (
            f"{self.steps} optimiser steps of {self.prompts} prompts x {self.completions} completions, "
            f"{self.steps_per_phase} per generation round"
        )

    def probe(self) -> LanguageSpec:
        return dataclasses.replace(
            self, steps=3 * self.steps_per_phase, evaluations=1, evaluation_problems=self.sequences
        )


COMMON = "env algorithm hyper capacity lag seed".split()
PRESETS = list(dict.fromkeys([*ControlSpec.presets, *LanguageSpec.presets]))
