"""Training loop of every kind of task: store the newest version, collect with past ones, train, evaluate, record."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from ..algorithm import check, make_algorithm
from ..base.streams import seed_global_generators
from ..base.torch_modes import modes_kept
from ..errors import Diverged
from ..spec import RunSpec
from ..task import Task, find_env
from .base_learner import Learner
from .lag_and_sample_totals import Accounts
from .lag_stats import external_lag_metrics
from .method_descriptions import describe, warnings_of
from .phase_record import Data, PhaseData, PhaseRecord, Scores
from .policy_buffer import PolicyBuffer, Version
from .version_assignment import Lags

if TYPE_CHECKING:
    from torch import Tensor

Rows = TypeVar("Rows", covariant=True)  # of a kind of task
RACE = (
    "LAG={}: which version acts depends on a race of processes, so this run is not a function of its settings; only "
    "the trace beside its record replays it"
)


class Policy(Protocol):
    """Policy that can be stored."""

    def snapshot(self, phase: int, gradient_step: int) -> Version: ...


class RowSource(Protocol[Rows]):
    """Source of the rows that a run trains on: those that the lag model plans, or those of actors in real time."""

    def collect(self, buffer: PolicyBuffer, phase: int) -> Rows:
        """Return the rows that `phase` trains on."""

    def artifacts(self) -> dict[str, bytes]:
        """Return files that a finished run leaves with its record, by name."""

    def close(self) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Simulation(ABC, Generic[Data]):
    """One run, phase by phase. Iterating yields a `PhaseRecord` per phase until the budget is spent.

    All state between phases is in `state_dict`; random streams are functions of the phase, and the global generators,
    from which plugins may draw, are seeded anew at each of its stages. A kind of task sets `policy` and `learner`, and
    defines `collect` and `evaluate`.

    stateful: names of further attributes with state, beside learner, buffer and accounts.
    counts: names of what evaluations count besides scores (`Scores.counts`).
    """

    spec: RunSpec
    task: Task
    policy: Policy
    learner: Learner[Data, Any]
    stateful: ClassVar[tuple[str, ...]] = ()
    counts: ClassVar[tuple[str, ...]] = ()

    def __init__(self, spec: RunSpec, task: Task) -> None:
        self.spec, self.task = spec, task
        self.algorithm = make_algorithm(spec)
        check(self.algorithm, spec, task.provides)
        self.buffer, self.lags = PolicyBuffer(spec.capacity), Lags(spec)
        self.accounts = Accounts(spec.fill_phases)
        self.phase = 0
        self.evaluation_steps = 0
        self.trained: tuple[dict[str, Any], dict[str, float]] | None = None  # of a phase to be evaluated
        self.keep_data = False  # in the records of phases
        self.rows: Any = None  # of the latest phase, if kept
        self.before_evaluation: Callable[[], None] = lambda: None  # called in every phase once it is trained
        self.method = describe(self.algorithm, spec)  # plain data: readers of results may not have the plugin
        self.warnings = warnings_of(self.algorithm, spec)
        if self.lags.model.real:
            self.warnings.append(RACE.format(spec.lag))

    @property
    def eval_modes(self) -> Sequence[str]:
        """Evaluation modes of this run."""
        return tuple(self.task.measures)

    @property
    def test_size(self) -> int:
        """Number of problems in the test split; 1 for a kind of task without problems."""
        return 1

    def external_lag(self, phase: int, gradient_step: Tensor) -> dict[str, float]:
        """Return the lag of a phase's decisions as other systems count it, for metrics; none where versions are drawn.

        gradient_step: optimiser steps done when the versions of the decisions were stored.
        """
        updates = self.spec.epochs_in(phase) * self.spec.minibatches
        return {} if self.lags.drawn else external_lag_metrics(gradient_step, self.gradient_steps, updates)

    @property
    def gradient_steps(self) -> int:
        return self.learner.gradient_steps

    def __iter__(self) -> Iterator[PhaseRecord]:
        while self.trained is not None or self.phase < self.spec.phases:
            yield self.advance()

    def advance(self) -> PhaseRecord:
        """Run one phase, or what is left of it where a checkpoint was made before its evaluation.

        Raises `Diverged` when a log-probability, a loss, a gradient or a parameter is no longer finite.
        """
        if self.trained is None:
            with modes_kept(f"a plugin in phase {self.phase}"):
                self.trained = self._train()
        self.before_evaluation()
        metrics, seconds = self.trained
        spec, phase, start = self.spec, metrics["phase"], time.perf_counter()
        scores = self._scores() if phase in spec.evaluation_phases() else None
        self.evaluation_steps += scores.steps if scores else 0
        metrics |= {f"eval_{mode}": scores.mean(mode) if scores else None for mode in self.eval_modes}
        metrics |= {f"eval_{name}": scores.counts[name] if scores else None for name in self.counts}
        seconds["evaluate"] += time.perf_counter() - start
        self.trained = None
        return PhaseRecord(metrics, seconds, scores, self.rows)

    def _train(self) -> tuple[dict[str, Any], dict[str, float]]:
        """Run a phase up to its evaluation; returns metrics and seconds. The newest policy is stored before versions
        are assigned, so lag 0 is always possible."""
        spec, phase = self.spec, self.phase
        start = time.perf_counter()
        first_scores = self._scores() if phase == 0 else None
        collect_start = time.perf_counter()
        steps_before = self.gradient_steps
        seed_global_generators(spec.seed, "collect", phase)
        self.buffer.push(self.policy.snapshot(phase, steps_before))
        phase_data = self.collect(phase)
        if not bool(phase_data.behaviour_logp.isfinite().all()):
            raise Diverged(f"a behaviour log-probability is not finite in phase {phase}")
        self.rows = self.rows_of(phase_data.data) if self.keep_data else None
        collect_end = time.perf_counter()
        seed_global_generators(spec.seed, "learn", phase)
        metrics, learning = self.learner.train(phase_data.data, phase)
        metrics |= self.between_phases(phase_data.data)
        self.phase += 1
        metrics |= {"phase": phase, "steps": spec.budget_phase(self.phase) * spec.steps_per_phase}
        if first_scores:  # of the policy before training, with their standard errors
            self.evaluation_steps += first_scores.steps
            metrics |= {f"untrained/{mode}": first_scores.mean(mode) for mode in first_scores.returns}
            metrics |= {f"untrained/{mode}_error": first_scores.error(mode) for mode in first_scores.returns}
        metrics |= self.lags.ledger(phase) | phase_data.metrics
        metrics |= self.accounts.enter(phase, steps_before, self.learner, phase_data, self.lags)
        seconds = {
            "collect": collect_end - collect_start,
            "learn": time.perf_counter() - collect_end,
            "evaluate": collect_start - start,  # of the untrained policy
            **phase_data.seconds,
            **learning,
        }
        return metrics, seconds

    def _scores(self) -> Scores:
        """Evaluate after `self.phase` phases, with the global generators seeded from that number."""
        seed_global_generators(self.spec.seed, "evaluate", self.phase)
        with modes_kept("a plugin in an evaluation"):
            return self.evaluate()

    @abstractmethod
    def collect(self, phase: int) -> PhaseData[Data]:
        """Return the data to learn from in `phase`, generated by the versions that the lag model assigns."""

    @abstractmethod
    def evaluate(self) -> Scores:
        """Scores of the newest policy, after `self.phase` phases."""

    def rows_of(self, data: Data) -> Any:
        """Return the part of a phase's data that its record holds."""
        return data

    def between_phases(self, data: Data) -> dict[str, Any]:
        """Apply changes between training and evaluation; returns their metrics."""
        return {}

    def artifacts(self) -> dict[str, bytes]:
        """Files that a finished run leaves beside its record, by name."""
        return {}

    def save(self, folder: Path) -> None:
        """Write files into the folder of a finished run that are too large for `artifacts`."""

    def close(self) -> None:
        """Release resources such as processes."""

    @property
    def _parts(self) -> tuple[str, ...]:
        return ("learner", "buffer", "accounts", *self.stateful)

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and primitives only, so that loading a checkpoint executes no code."""
        parts = {name: getattr(self, name).state_dict() for name in self._parts}
        trained = json.dumps(self.trained)  # numbers of any library become plain ones, and keep every digit
        return {"phase": self.phase, "evaluation_steps": self.evaluation_steps, "trained": trained, **parts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.phase, self.evaluation_steps = state["phase"], state["evaluation_steps"]
        self.trained = json.loads(state["trained"])
        for name in self._parts:
            getattr(self, name).load_state_dict(state[name])


def simulation_of(spec: RunSpec, folder: Path = Path()) -> Simulation[Any]:
    """Construct the simulation of a run; relative paths in its spec start at `folder`.

    Seeds the global generators before any plugin is constructed.
    """
    family = find_env(spec.env)[1]
    seed_global_generators(spec.seed, "construct")
    simulation: Simulation[Any] = family.simulation(spec, folder)
    return simulation
