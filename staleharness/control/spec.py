"""The settings of a run on a vector of gymnasium environments."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..base.text_formatting import plural
from ..errors import UserError
from ..lag import read_lag
from ..objectives import KLEstimator
from ..rollout_schedule import Demand
from ..spec import RunSpec, later

if TYPE_CHECKING:
    from ..algorithm import Algorithm

PROBE_STEPS = 4_096  # environment steps


@dataclass(frozen=True)
class ControlSpec(RunSpec):
    """A run on a vector of gymnasium environments; `steps` counts environment steps."""

    steps: int = 100_352  # of all environments together; whole phases of it are run

    # collection
    num_envs: int = 16  # stepped at once; under a lag model that draws, each has its own version
    num_steps: int = 128  # per environment and phase
    mechanism: Literal["reexecute", "replay"] = "reexecute"  # past policies act again, or their data are reused
    assignment: Literal["phase", "episode"] = "phase"  # an actor keeps its version for a phase or an episode
    density: Literal["component", "mixture"] = "component"  # behaviour policy: the version that acted, or the mixture
    # statistics with which past versions act: their own, today's, or those of the first phase
    observation_statistics: Literal["snapshot", "shared_live", "frozen"] = "snapshot"
    # critic for the data of past versions: today's, or that of the version that acted
    value_function: Literal["learner", "behaviour"] = later("learner", before="learner")
    reset_each_phase: bool = False  # begin new episodes in each phase
    envs_per_actor: int = later(1, before=1)  # environments of an actor, where a schedule assigns actors

    # learning
    epochs: int = 10  # passes over the data of a phase
    minibatches: int = 8  # gradient steps per epoch
    bootstrap_truncation: bool = True  # false: a time limit counts as a termination (CleanRL)
    scale_rewards: bool = True  # by the running standard deviation of the discounted return
    value_coef: float = 0.5  # of the critic's loss
    value_clip: float = 0.2  # around the learner's value at the start of the phase; 0 is off
    max_grad_norm: float = 0.5  # longer gradients, of actor and critic together, are scaled down to it
    # arithmetic of networks and optimiser: torch, a C++ kernel, or that kernel with the method's loss compiled too
    learner: Literal["torch", "native", "compiled"] = later("torch", before="torch")
    hidden: tuple[int, ...] = (64, 64)  # widths of the tanh layers, of actor and critic each

    # warm-up: on-policy phases of the run at its beginning, the same whatever its K, lag model and epochs are
    warm_phases: int = later(0, before=0)
    warm_epochs: int = later(10, before=10)  # in place of `epochs`, while the warm-up lasts

    # the policy of a finished run, in its folder as policy.safetensors: the last, or that of the best evaluation
    keep: Literal["last", "best", "none"] = later("last", before="last")
    start: str = later("", before="")  # folder of a finished run whose policy this one begins with
    start_digest: str = later("", before="")  # of that policy, filled in when a run is planned
    env_digest: str = later("", before="")  # of the code and registration of a gymnasium id, filled in likewise

    # evaluation: the newest policy, frozen statistics, fixed seeds
    evaluation_episodes: int = 5  # sampled and as many deterministic, at each point but the last
    final_episodes: int = 20  # sampled and as many deterministic, at the end

    scores_start: ClassVar[bool] = True
    unit: ClassVar[str] = "environment steps"
    outside_id: ClassVar[frozenset[str]] = frozenset({"keep", "start"})
    alike: ClassVar[tuple[str, ...]] = (*RunSpec.alike, "num_envs", "num_steps", "epochs", "minibatches")
    of_evaluation: ClassVar[tuple[str, ...]] = (*RunSpec.of_evaluation, "evaluation_episodes", "final_episodes")
    positive: ClassVar[str] = f"{RunSpec.positive} num_envs num_steps evaluation_episodes final_episodes"
    not_negative: ClassVar[str] = f"{RunSpec.not_negative} value_coef value_clip"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        # a first look: minutes on two cores
        "quick": {"steps": 92_160, "num_envs": 16, "num_steps": 128, "epochs": 10, "minibatches": 8, "evaluations": 6},
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
        if self.warm_epochs < 1:
            raise UserError(f"warm_epochs={self.warm_epochs} must be at least 1")
        if not 0 <= self.warm_phases < max(1, self.budget_phases):
            raise UserError(
                f"warm_phases={self.warm_phases} must be at least 0 and leave at least 1 of the {self.budget_phases} "
                f"phases of STEPS={self.steps}"
            )
        if not self.hidden or any(width < 1 for width in self.hidden):
            raise UserError(f"hidden={list(self.hidden)} must be a list of positive layer widths")
        if self.steps < self.steps_per_phase:
            raise UserError(
                f"STEPS={self.steps} is less than one phase: {self.num_envs} environments x {self.num_steps} steps "
                f"= {self.steps_per_phase}"
            )
        if self.assignment == "episode" and self.mechanism == "replay":
            raise UserError(
                "assignment=episode keeps an actor's version until its episode ends; with mechanism=replay the newest "
                "version always acts, so use assignment=phase"
            )
        if self.assignment == "episode" and self.density == "mixture":
            raise UserError(
                "density=mixture is the policy of actors whose versions are drawn anew in each phase, and with "
                "assignment=episode they are not; use density=component, or assignment=phase"
            )
        if self.mechanism == "replay" and self.density == "mixture":
            raise UserError(
                "density=mixture is the policy of several versions that act; with mechanism=replay the newest version "
                "always acts; use density=component, or mechanism=reexecute"
            )
        if self.learner != "torch" and self.device != "cpu":
            raise UserError(
                f"learner={self.learner} computes on the CPU, not on device={self.device}; use learner=torch"
            )
        if self.envs_per_actor < 1 or self.num_envs % self.envs_per_actor:
            raise UserError(f"envs_per_actor={self.envs_per_actor} must divide num_envs={self.num_envs}")
        if self.minibatches > self.steps_per_phase:
            raise UserError(f"minibatches={self.minibatches} exceeds the {self.steps_per_phase} decisions of a phase")
        if self.normalise_advantage and 2 * self.minibatches > self.steps_per_phase:
            raise UserError(
                f"minibatches={self.minibatches} of {self.steps_per_phase} decisions: one alone has a normalised "
                f"advantage of 0 and teaches nothing; give {self.steps_per_phase // 2} or less, or "
                "normalise_advantage=false"
            )

    @property
    def least_memory(self) -> int:
        """Bytes of numbers that a run holds at least: two networks with their gradients and AdamW's two moments, from
        one input to one output, and a few numbers of each decision of a phase."""
        weights = sum((a + 1) * b for a, b in itertools.pairwise((1, *self.hidden, 1)))
        return 4 * (2 * 4 * weights + 6 * self.steps_per_phase)

    @property
    def steps_per_phase(self) -> int:
        return self.num_envs * self.num_steps

    @property
    def demand(self) -> Demand:
        size = 1 if read_lag(self.lag).drawn else self.envs_per_actor
        return Demand(self.phases, self.num_envs // size, size, self.num_steps, self.seed)

    @property
    def size(self) -> str:
        return (
            f"{plural(self.budget_phases, 'phase')} of {self.num_envs} x {self.num_steps} steps = "
            f"{self.budget_phases * self.steps_per_phase:,} steps, "
            f"{plural(self.epochs, 'epoch')} x {plural(self.minibatches, 'minibatch')}"
        )

    def evaluation_count(self, final: bool, problems: int = 0) -> int:
        return 2 * (self.final_episodes if final else self.evaluation_episodes)

    def warm(self, phase: int) -> bool:
        return phase < self.fill_phases + self.warm_phases

    def corrections(self) -> set[str]:
        affects = {
            "reset_each_phase": self.reset_each_phase,  # returns that scale rewards ran on across resets
            "reused_batches": self.lag.startswith("rllib_appo"),  # running statistics counted them again
        }
        return {name for name, is_affected in affects.items() if is_affected}

    def toolchain(self) -> dict[str, str]:
        if self.learner == "torch":
            return {}
        from ..base.cpp_library import compiler_version

        return {"compiler": compiler_version()}

    def epochs_in(self, phase: int) -> int:
        return self.warm_epochs if self.warm(phase) and phase >= self.fill_phases else self.epochs

    def too_few_rows(self) -> str | None:
        if self.num_envs >= self.minibatches:
            return None
        return f"num_envs={self.num_envs} must be at least minibatches={self.minibatches}"

    @property
    def mixes_versions(self) -> bool:
        """True where μ is a mixture of several versions."""
        return self.density == "mixture" and self.capacity > 1

    def probe(self) -> ControlSpec:
        """Three phases with rows as wide as asked but no longer than needed."""
        length = max(1, min(self.num_steps, PROBE_STEPS // self.num_envs))
        small = min(self.minibatches, max(1, self.num_envs * length // 2))
        steps = 3 * self.num_envs * length
        short = dataclasses.replace(self, warm_phases=0, fill_phases=0, fill_learning_rate=0.0)
        return dataclasses.replace(short, num_steps=length, steps=steps, minibatches=small, evaluations=1)


def no_closed_form(algorithm: Algorithm) -> str:
    """Say that a method needs a KL from μ in closed form, which a mixture of several versions does not have."""
    options = algorithm.hyper_parameter_types()
    remedy = [f"{name}=k3" for name, hint in options.items() if hint == KLEstimator]
    return (
        f"{algorithm.name} needs a KL from μ in closed form, and the μ of density=mixture has none; give "
        f"{' or '.join([*remedy, 'density=component'])}"
    )
