"""Specification of a run: frozen data with canonical JSON; a run's id is a hash of its resolved spec.

A run is a pure function of its `RunSpec`. This module knows neither torch nor any plugin by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self

from .base.options import later as later
from .base.options import values_before, without_retired
from .base.parsing import canonical_json
from .base.typed_values import build
from .errors import UserError
from .rollout_schedule import Demand

MAX_THREADS = 1024
MAX_FILL = 10_000  # phases
StepSize = Literal["constant", "ess", "inverse_lag"]
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
MATHS_VERSION = 1  # raised by hand when a change can move results; part of every run's id


@dataclass(frozen=True)
class RunSpec:
    """One training run: what control and language have in common. Every field is part of the run's identity; one that
    is added now is written `name: type = later(...)`, so that existing runs keep their ids."""

    env: str  # canonical environment id
    algorithm: str  # registered name
    hyper: Mapping[str, Any] = field(default_factory=dict)  # the method's own hyper-parameters, all of them
    capacity: int = 1  # K, versions in the policy buffer; 1 is on-policy
    lag: str = "uniform"  # lag model, see `lag.read_lag`
    seed: int = 0
    steps: int = 1  # of training, in the unit of the kind of task; evaluation is counted apart

    # learning, shared by all algorithms
    epochs: int = 1  # passes over the data of a phase
    minibatches: int = 1  # gradient steps per epoch and phase
    learning_rate: float = 3e-4  # of Adam, AdamW where there is weight decay
    anneal_learning_rate: bool = True  # linearly to zero over the phases
    adam_epsilon: float = 1e-5  # ε in Adam's denominator
    discount: float = 0.99  # γ, per decision
    gae_lambda: float = 0.95  # λ of GAE and V-trace
    normalise_advantage: bool = True  # to mean 0 and deviation 1, per minibatch
    entropy_coef: float = 0.0  # of the entropy bonus in the loss
    max_grad_norm: float = 0.5  # longer gradients are scaled down to it
    step_size: StepSize = "constant"  # beside the schedule: × √ESS of the minibatch, or ÷ its mean lag

    # with K - 1 or more fill phases, data are as old as the lag model says from the first step of the budget on, and
    # runs of every K begin there with the same policy
    fill_phases: int = later(0, before=0)  # on-policy phases before the budget
    fill_learning_rate: float = later(0.0, before=0.0)  # of the fill phases; 0: the run's first one
    mismatch: str = later("none", before="none")  # between sampler and trainer, see `mismatch.read_mismatch`
    # log μ of methods: the sampler's, its version's by the trainer's arithmetic, or what the mismatch model says
    behaviour: Literal["auto", "sampler", "version"] = later("auto", before="auto")

    evaluations: int = 10  # points on the learning curve, the final one included

    # machine
    device: str = "cpu"  # where networks live: cpu, cuda or cuda:N; physics stays on the CPU
    threads: int = 1  # of torch and of the physics; bits depend on it

    advantage_correction: ClassVar[float] = 1.0  # see `training.base_learner.normalise`
    outside_id: ClassVar[frozenset[str]] = frozenset()  # settings that ids leave out: no number depends on their text
    scores_start: ClassVar[bool] = False  # the learner scores a phase's data at its start whatever the method is
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    retired: ClassVar[Mapping[str, Any]] = {}  # fields that were removed, at the value that stays in the ids of runs
    fills_gpu: ClassVar[bool] = False  # a run takes all of a GPU's memory, so by default no other runs beside it
    unit: ClassVar[str] = "steps"  # unit of `steps`, in words
    alike: ClassVar[tuple[str, ...]] = ("env", "threads", "device")  # settings that runs of one speed share
    of_evaluation: ClassVar[tuple[str, ...]] = ("evaluations",)  # settings that decide how long evaluations take
    positive: ClassVar[str] = "capacity steps epochs minibatches learning_rate max_grad_norm evaluations threads"
    not_negative: ClassVar[str] = "entropy_coef seed"

    def __post_init__(self) -> None:
        for name in (*self.positive.split(), "adam_epsilon"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name}={getattr(self, name)} must be positive")
        for name in ("discount", "gae_lambda"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name}={getattr(self, name)} must lie in [0, 1]")
        for name in self.not_negative.split():
            if getattr(self, name) < 0:
                raise UserError(f"{name}={getattr(self, name)} must not be negative")
        if not 0 <= self.fill_phases <= MAX_FILL:
            raise UserError(f"fill_phases={self.fill_phases} must lie in [0, {MAX_FILL}]")
        if self.fill_learning_rate < 0 or (self.fill_learning_rate and not self.fill_phases):
            rule = "must not be negative" if self.fill_phases else "has no phase to be used in: fill_phases=0"
            raise UserError(f"fill_learning_rate={self.fill_learning_rate} {rule}")
        if self.threads > MAX_THREADS:
            raise UserError(f"threads={self.threads} is more than {MAX_THREADS}")

    @property
    def steps_per_phase(self) -> int:
        """Steps per phase, in the unit of `steps`: by default steps of the optimiser."""
        return self.minibatches * self.epochs

    @property
    def budget_phases(self) -> int:
        """Whole phases that fit in `steps`."""
        return self.steps // self.steps_per_phase

    @property
    def phases(self) -> int:
        """All phases: those that fill the buffer, then those of the budget."""
        return self.fill_phases + self.budget_phases

    def budget_phase(self, phase: int) -> int:
        """Return the number of a phase among those of the budget; 0 before they begin."""
        return max(0, phase - self.fill_phases)

    def learning_rate_in(self, phase: int) -> float:
        """Learning rate of a phase."""
        if phase < self.fill_phases and self.fill_learning_rate:
            return self.fill_learning_rate
        left = 1.0 - self.budget_phase(phase) / self.budget_phases
        return self.learning_rate * (left if self.anneal_learning_rate else 1.0)

    @property
    def demand(self) -> Demand | None:
        """Demand of the learner on a schedule; None for a kind of task without schedules."""
        return None

    @property
    def weight_decay(self) -> float:
        """Weight decay of AdamW; 0 for a kind of task without the setting."""
        return 0.0

    @property
    def size(self) -> str:
        """Description of the run's size, in a few numbers."""
        raise NotImplementedError

    def toolchain(self) -> dict[str, str]:
        """Programs, apart from the libraries, that decide the bits of a run, with versions, for its fingerprint."""
        return {}

    def warm(self, phase: int) -> bool:
        """Return whether a phase is on-policy under every lag model: before the budget, or in a warm-up inside it."""
        return phase < self.fill_phases

    def epochs_in(self, phase: int) -> int:
        """Passes over the data of a phase."""
        return self.epochs

    def too_few_rows(self) -> str | None:
        """Return an error message where a phase has fewer rows than minibatches, else None."""
        return None

    def probe(self) -> RunSpec:
        """Return a spec of the same work in a few phases, to measure its speed."""
        raise NotImplementedError

    def evaluation_phases(self) -> list[int]:
        """Phases after which the policy is evaluated; evenly spaced over the budget, the last one included."""
        phases = self.budget_phases
        count = min(self.evaluations, phases)
        return sorted({self.fill_phases + (i + 1) * phases // count - 1 for i in range(count)})

    def evaluation_count(self, final: bool, problems: int = 0) -> int:
        """Return the number of episodes, or of completions, that one evaluation takes, the final one or another.

        problems: number in the test split of a language task, for settings that do not name one.
        """
        return 1

    def to_dict(self) -> dict[str, Any]:
        return _plain({f.name: getattr(self, f.name) for f in fields(self)}) | {"hyper": dict(self.hyper)}

    def to_json(self) -> str:
        return canonical_json(self.to_dict())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "run spec") -> Self:
        """Build a spec; an unknown key or a wrong type is a `UserError` naming the nearest key."""
        return build(cls, without_retired(values, cls.retired, where), where)

    @classmethod
    def settings(cls) -> list[str]:
        """The fields that are not an axis of a sweep."""
        return [f.name for f in fields(cls) if f.name not in COMMON]

    @classmethod
    def before(cls) -> dict[str, Any]:
        """Return the fields that were added `later` or removed, each at the value that stored runs without it mean."""
        return _plain({**cls.retired, **values_before(cls)})

    def corrections(self) -> set[str]:
        """Corrections of the code that moved the results of this run and not of others; they are in its id, so runs
        from before a correction do not count."""
        return set()

    def run_id(
        self,
        algorithm_hash: str,
        env_hash: str,
        lag_hash: str = "",
        lag: str = "",
        hyper: Mapping[str, Any] | None = None,
        mismatch_hash: str = "",
    ) -> str:
        """Return 12 hex digits. The plugins' own files count, so editing `spo.py` expires SPO's runs and no others.
        So do the file of the lag model where it has a hash (`lag_hash`), what stands for the model where that is not
        its text (`lag_identity`), and the file of the mismatch model if there is one (`mismatch.mismatch_hash`).
        `hyper`: the hyper-parameters that count, if not all (`algorithm.identity`)."""
        before = _plain(values_before(self))
        identity_spec = {**self.to_dict(), **self.retired, **({} if hyper is None else {"hyper": dict(hyper)})}
        identity_spec = {k: v for k, v in identity_spec.items() if k not in self.outside_id}
        identity: dict[str, Any] = {
            "spec": {k: v for k, v in identity_spec.items() if k not in before or v != before[k]},
            "maths": MATHS_VERSION,
            "algorithm_file": algorithm_hash,
            "env_file": env_hash,
        }
        identity |= {"corrections": corrections} if (corrections := sorted(self.corrections())) else {}
        identity["spec"] |= {"lag": lag} if lag else {}
        identity |= {"lag_file": lag_hash} if lag_hash else {}
        identity |= {"mismatch_file": mismatch_hash} if mismatch_hash else {}
        return hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:12]


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}


COMMON = "env algorithm hyper capacity lag mismatch seed".split()
