"""A method that writes down what it is asked, so that a whole run can be checked from the plugin's side."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from torch import Tensor

from staleharness.algorithm import Algorithm, Proximal, Realign
from staleharness.batch import Decisions, PolicyLoss, Targets, Trajectories
from staleharness.errors import UserError
from staleharness.objectives import gae, importance_ratio


@dataclass
class MethodCalls:
    """Calls of a run to its method, in order."""

    shown: list[Trajectories] = field(default_factory=list)  # by `targets`
    asked: list[Decisions] = field(default_factory=list)  # by `policy_loss`, without gradient
    divergence: list[dict[str, Tensor]] = field(default_factory=list)  # the analytic KLs then
    told: list[dict[str, float]] = field(default_factory=list)  # by `next_state`: the diagnostics
    watch: Callable[[], Any] = lambda: None  # called at each `policy_loss`; what it returns goes to `watched`
    watched: list[Any] = field(default_factory=list)

    def watch_run(self, simulation: Any, watch: Callable[[], Tensor]) -> list[dict[str, Any]]:
        """Return the metrics of a whole run, whose calls replace those recorded so far."""
        for calls in (self.shown, self.asked, self.divergence, self.told, self.watched):
            calls.clear()
        self.watch = watch
        metrics = [record.metrics for record in simulation]
        simulation.close()
        return metrics


def phases(seen: list[Any], number: int = 4) -> list[list[Any]]:
    """Recorded items, phase by phase."""
    size = len(seen) // number
    return [seen[i : i + size] for i in range(0, len(seen), size)]


@dataclass(frozen=True)
class Witness(Algorithm):
    """Plain importance weighting. Its options are the answers that a method can give."""

    realign: Realign = "phase"
    anchor: Proximal = "behaviour"
    decay: float = 0.9
    normalise: bool = False
    factor: float = 1.0  # on the step size, to the power of the phases done
    mute: bool = False  # no policy gradient
    blind: bool = False  # no advantages
    breaks_at: int = 0  # the call of `policy_loss`, from 1, whose answer is infinite

    seen: ClassVar[MethodCalls]

    @property
    def realign_every(self) -> Realign:
        return self.realign

    @property
    def proximal(self) -> Proximal:
        return self.anchor

    @property
    def ewma_decay(self) -> float:
        return self.decay

    @property
    def normalise_advantage(self) -> bool:
        return self.normalise

    def init_state(self) -> dict[str, float]:
        return {"phases": 0.0}

    def next_state(self, state: Any, diagnostics: Any) -> dict[str, float]:
        self.seen.told.append(dict(diagnostics))
        return {"phases": state["phases"] + 1.0}

    def step_scale(self, decisions: Decisions) -> float:
        return float(self.factor ** decisions.state["phases"])

    def targets(self, trajectories: Trajectories) -> Targets:
        self.seen.shown.append(trajectories)
        found = gae(trajectories)
        return Targets(found.advantage * (not self.blind), found.value_target)

    def policy_loss(self, d: Decisions) -> PolicyLoss:
        self.seen.asked.append(replace(d, target_logp=d.target_logp.detach().clone()))
        if d.analytic_kl is not None:
            with contextlib.suppress(UserError):  # of a mixture, from which none has a closed form
                kl = {anchor: d.analytic_kl(anchor).detach() for anchor in ("behaviour", "proximal")}
                self.seen.divergence.append(kl)
        self.seen.watched.append(self.seen.watch())
        ratio = importance_ratio(d.target_logp, d.behaviour_logp)
        scale = float("inf") if len(self.seen.asked) == self.breaks_at else float(not self.mute)
        return PolicyLoss(-ratio * d.advantage * scale, {"told": d.advantage, "ratio": ratio})
