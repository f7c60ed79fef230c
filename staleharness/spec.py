"""Specification of a run: frozen data with canonical JSON; a run's id is a hash of its resolved spec.

A run is a pure function of its `RunSpec`. This module imports neither torch nor any plugin.
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
    """Settings of a training run that all kinds of task share.

    Every field not in `outside_id` is part of the run's identity. Declare a new one as `name: type = later(...)`, so
    that existing runs keep their ids."""

    env: str  # canonical environment id
    algorithm: str  # registered name
    hyper: Mapping[str, Any] = field(default_factory=dict)  # all hyper-parameters of the method
    capacity: int = 1  # K, versions in the policy buffer; 1 is on-policy
    lag: str = "uniform"  # lag model, see `lag.read_lag`
    seed: int = 0
    steps: int = 1  # training steps, in the unit of the kind of task; evaluation does not count

    # learning, shared by all algorithms
    epochs: int = 1  # passes over the data of a phase
    minibatches: int = 1  # gradient steps per epoch
    learning_rate: float = 3e-4  # of Adam, or AdamW if there is weight decay
    anneal_learning_rate: bool = True  # linearly towards zero over the phases of the budget
    adam_epsilon: float = 1e-5  # ε in Adam's denominator
    discount: float = 0.99  # γ, per decision
    gae_lambda: float = 0.95  # λ of GAE and V-trace
    normalise_advantage: bool = True  # to mean 0 and standard deviation 1, per minibatch
    entropy_coef: float = 0.0  # of the entropy bonus in the loss
    max_grad_norm: float = 0.5  # larger gradient norms are scaled down to it
    # factor on the learning rate: 1, √ESS of the minibatch's rows (on control of its decisions, unless the method
    # trains on whole rows), or 1/max(1, its mean lag)
    step_size: StepSize = "constant"

    # with K - 1 or more fill phases, lag follows the lag model from the first step of the budget, and runs of every K
    # begin the budget with the same policy
    fill_phases: int = later(0, before=0)  # on-policy phases before the budget
    fill_learning_rate: float = later(0.0, before=0.0)  # of the fill phases; 0: the run's initial learning rate
    mismatch: str = later("none", before="none")  # between sampler and trainer, see `mismatch.read_mismatch`
    # source of log μ: the sampler, or the trainer under the acting version; auto: the sampler with a mismatch model or
    # a trusted decoder, else the version
    behaviour: Literal["auto", "sampler", "version"] = later("auto", before="auto")

    evaluations: int = 10  # points on the learning curve, including the final one

    # machine
    device: str = "cpu"  # of the networks: cpu, cuda or cuda:N; physics runs on the CPU
    threads: int = 1  # of torch and of the physics; the bits of results depend on it

    advantage_correction: ClassVar[float] = 1.0  # see `training.base_learner.normalise`
    outside_id: ClassVar[frozenset[str]] = frozenset()  # settings left out of ids: no number depends on their text
    scores_start: ClassVar[bool] = False  # every method's learner scores the data at the start of a phase
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    retired: ClassVar[Mapping[str, Any]] = {}  # removed fields, each at the value that stays in run ids
    fills_gpu: ClassVar[bool] = False  # a run takes all of a GPU's memory, so by default it runs there alone
    unit: ClassVar[str] = "steps"  # unit of `steps`, in words
    alike: ClassVar[tuple[str, ...]] = ("env", "threads", "device")  # settings in which runs of comparable speed agree
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
            rule = "must not be negative" if self.fill_phases else "has no effect with fill_phases=0"
            raise UserError(f"fill_learning_rate={self.fill_learning_rate} {rule}")
        if self.threads > MAX_THREADS:
            raise UserError(f"threads={self.threads} is more than {MAX_THREADS}")

    @property
    def steps_per_phase(self) -> int:
        """Steps per phase, in the unit of `steps`: by default steps of the optimiser."""
        return self.minibatches * self.epochs

    @property
    def budget_phases(self) -> int:
        """Number of whole phases that fit in `steps`."""
        return self.steps // self.steps_per_phase

    @property
    def phases(self) -> int:
        """Number of all phases: the fill phases, then those of the budget."""
        return self.fill_phases + self.budget_phases

    def budget_phase(self, phase: int) -> int:
        """Return the index of a phase within the budget; 0 before the budget begins."""
        return max(0, phase - self.fill_phases)

    def learning_rate_in(self, phase: int) -> float:
        """Learning rate of a phase."""
        if phase < self.fill_phases and self.fill_learning_rate:
            return self.fill_learning_rate
        left = 1.0 - self.budget_phase(phase) / self.budget_phases
        return self.learning_rate * (left if self.anneal_learning_rate else 1.0)

    @property
    def demand(self) -> Demand | None:
        """Data that the learner demands of a schedule; None for a kind of task without schedules."""
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
        """Return {program: version} of programs, besides libraries, that affect a run's bits, for its fingerprint."""
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
        """Return a spec with the same work per phase and few phases, to measure the speed."""
        raise NotImplementedError

    def evaluation_phases(self) -> list[int]:
        """Return the phases after which the policy is evaluated: evenly spaced over the budget, including the last."""
        phases = self.budget_phases
        count = min(self.evaluations, phases)
        return sorted({self.fill_phases + (i + 1) * phases // count - 1 for i in range(count)})

    def evaluation_count(self, final: bool, problems: int = 0) -> int:
        """Return the number of episodes, or of completions, in one evaluation; `final`: in the final one.

        problems: size of the test split of a language task, for settings that do not give a number.
        """
        return 1

    def to_dict(self) -> dict[str, Any]:
        return _plain({f.name: getattr(self, f.name) for f in fields(self)}) | {"hyper": dict(self.hyper)}

    def to_json(self) -> str:
        return canonical_json(self.to_dict())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], where: str = "run spec") -> Self:
        """Build a spec. Raises `UserError` for a wrong type, and for an unknown key, with the nearest known one."""
        return build(cls, without_retired(values, cls.retired, where), where)

    @classmethod
    def settings(cls) -> list[str]:
        """Return the fields that are not axes of a sweep."""
        return [f.name for f in fields(cls) if f.name not in COMMON]

    @classmethod
    def before(cls) -> dict[str, Any]:
        """Return the fields that were added `later` or removed, each at the value implied by stored runs without it."""
        return _plain({**cls.retired, **values_before(cls)})

    def corrections(self) -> set[str]:
        """Return the names of code corrections that changed the results of runs with these settings, but not of all
        runs; they are part of the id, so results from before a correction are not reused."""
        return set()

    def run_id(
        self,
        algorithm_hash: str,
        env_hash: str,
        lag_hash: str = "",
        lag: str = "",
        hyper: Mapping[str, Any] | None = None,
        mismatch_hash: str = "",
        mismatch: str = "",
    ) -> str:
        """Return the id of the run, 12 hex digits.

        The plugins' own files count, so editing `spo.py` expires SPO's runs and no others. `lag_hash`: hash of the lag
        model's file, if any. `lag`: text that identifies the lag model, if not its own text (`lag_identity`).
        `mismatch_hash`, `mismatch`: the same of the mismatch models. `hyper`: the hyper-parameters that count, if not
        all (`algorithm.identity`)."""
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
        identity["spec"] |= {"mismatch": mismatch} if mismatch else {}
        identity |= {"lag_file": lag_hash} if lag_hash else {}
        identity |= {"mismatch_file": mismatch_hash} if mismatch_hash else {}
        return hashlib.sha256(canonical_json(identity).encode()).hexdigest()[:12]


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {key: list(v) if isinstance(v, tuple) else v for key, v in values.items()}


COMMON = "env algorithm hyper capacity lag mismatch seed".split()
