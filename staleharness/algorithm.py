"""What an algorithm plugin answers: at most four questions, with defaults for three of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Literal

from . import objectives
from .batch import Decisions, PolicyLoss, Targets, Trajectories
from .plugins import Registry

Proximal = Literal["behaviour", "recompute", "ewma"]
Realign = Literal["phase", "epoch", "step"]


@dataclass(frozen=True)
class Algorithm:
    """How stale decisions become a loss. Subclass as a frozen dataclass; its fields are the method's own
    hyper-parameters. γ, λ, critic, entropy bonus, optimiser, epochs and minibatches belong to the run and are the
    same for every method, so that a difference in the results is a difference between methods.
    """

    name: ClassVar[str] = ""  # set by registration
    paper: ClassVar[str] = ""  # authors, year, identifier

    @property
    def proximal(self) -> Proximal:
        """The anchor in `Decisions.proximal_logp`: `behaviour` (no extra pass), `recompute` (the learner at the
        start of the phase) or `ewma` (a shadow of the learner; give `ewma_decay`)."""
        return "behaviour"

    @property
    def ewma_decay(self) -> float:
        """Decay of the shadow per gradient step, used when `proximal` is `ewma` (Hilton et al. 2022)."""
        return 0.889

    @property
    def realign_every(self) -> Realign:
        """How often `targets` is asked: once per phase, once per epoch, or at every gradient step (then
        minibatches are whole rows, so that time order is kept)."""
        return "phase"

    @property
    def normalise_advantage(self) -> bool:
        """Whether the learner normalises advantages per minibatch (the run may switch it off for all)."""
        return True

    def init_state(self) -> dict[str, float]:
        """The method's own state at phase 0 (an adaptive coefficient, say)."""
        return {}

    def next_state(self, state: Mapping[str, float], diagnostics: Mapping[str, float]) -> dict[str, float]:
        """The state after a phase; `diagnostics` are the phase's means of what `policy_loss` reported."""
        return dict(state)

    def targets(self, trajectories: Trajectories) -> Targets:
        """Advantages and value targets; GAE(γ, λ) under the learner's critic by default."""
        return objectives.gae(trajectories)

    def policy_loss(self, decisions: Decisions) -> PolicyLoss:
        """Loss per decision, to be minimised."""
        raise NotImplementedError(f"{type(self).__name__} must define policy_loss(decisions)")

    def step_scale(self, decisions: Decisions) -> float:
        """Factor on the step size of the coming gradient step."""
        return 1.0

    @classmethod
    def hyper_parameters(cls) -> dict[str, Any]:
        """Name -> default of each of the method's own hyper-parameters."""
        return {f.name: f.default for f in fields(cls) if f.default is not MISSING}


ALGORITHMS: Registry[type[Algorithm]] = Registry("algorithms")
