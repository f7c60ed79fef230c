"""A kind of task that the harness has never heard of, in one file, as a third party would write it: small Markov
decision processes whose values are known exactly, and a table of logits as the policy.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from staleharness import objectives
from staleharness.algorithm import check, make_algorithm
from staleharness.base.streams import stream
from staleharness.batch import Decisions, PolicyLoss, Targets, Trajectories
from staleharness.errors import UserError
from staleharness.lag import parse_lag
from staleharness.simulator.buffer import PolicyBuffer, Version
from staleharness.simulator.methods import describe, warnings_of
from staleharness.simulator.phase import PhaseRecord, Scores
from staleharness.spec import RunSpec
from staleharness.task import ENVS, Task

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TabularSpec(RunSpec):
    """A phase is `episodes` episodes of `horizon` transitions, and `epochs` gradient steps on all of them."""

    steps: int = 1280
    states: int = 6
    actions: int = 3
    horizon: int = 16
    episodes: int = 8

    learning_rate: float = 0.05
    anneal_learning_rate: bool = False
    discount: float = 0.9
    normalise_advantage: bool = False

    unit: ClassVar[str] = "transitions"
    positive: ClassVar[str] = f"{RunSpec.positive} states actions horizon episodes"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"quick": {}, "paper": {"steps": 128_000}}

    @property
    def steps_per_phase(self) -> int:
        return self.episodes * self.horizon

    @property
    def size(self) -> str:
        return f"{self.steps} transitions among {self.states} states"

    def probe(self) -> TabularSpec:
        return dataclasses.replace(self, steps=3 * self.steps_per_phase, evaluations=1)


@ENVS.register("tabular")
class Tabular(Task):
    """Random Markov decision processes with a few states; scores are exact values, in reward per step."""

    kind: ClassVar[str] = "tabular"
    settings: ClassVar[type[RunSpec]] = TabularSpec
    ids: ClassVar[dict[str, str]] = {f"random-mdp-{i}": f"random transitions, draw {i}" for i in range(2)}
    measures: ClassVar[dict[str, str]] = {"sampled": "exact value", "deterministic": "exact value, greedy"}
    normalise: ClassVar[str] = "raw"
    axes: ClassVar[dict[str, str]] = {"N": "epochs"}

    @classmethod
    def check(cls, spec: RunSpec) -> None:
        super().check(spec)
        if make_algorithm(spec).proximal == "ewma":
            raise UserError(f"{spec.algorithm} keeps a moving average of the learner; {spec.env} has none")

    @classmethod
    def simulation(cls, spec: RunSpec, folder: Path) -> TabularSimulation:
        assert isinstance(spec, TabularSpec)
        return TabularSimulation(spec)


class World:
    """The decision process of an id: transitions [S, A, S], rewards [S, A] in [0, 1); any state may be the first."""

    def __init__(self, spec: TabularSpec) -> None:
        shape, number = (spec.states, spec.actions), int(spec.env.rpartition("-")[2])
        draw = stream(number, "env", *shape)
        self.transition: Floats = draw.dirichlet(np.full(spec.states, 0.3), shape)
        self.reward: Floats = draw.random(shape)
        self.discount = spec.discount

    def values(self, policy: Floats) -> Floats:
        """V [S] of a policy [S, A]: the solution of V = r + γ P V."""
        reward = (policy * self.reward).sum(1)
        transition = np.einsum("sa,sat->st", policy, self.transition)
        return np.linalg.solve(np.eye(len(reward)) - self.discount * transition, reward)

    def score(self, policy: Floats) -> float:
        """(1 − γ) × the mean value of the first state."""
        return float((1.0 - self.discount) * self.values(policy).mean())


@dataclass(frozen=True)
class Episodes:
    """A phase as it was acted; all arrays [B, T]."""

    state: NDArray[np.int64]
    action: NDArray[np.int64]
    following: NDArray[np.int64]  # the state after the action
    behaviour_logp: Floats
    version: NDArray[np.int64]
    gradient_step: NDArray[np.int64]


class TabularSimulation:
    """One run, phase by phase."""

    def __init__(self, spec: TabularSpec) -> None:
        import torch

        self.spec, self.world = spec, World(spec)
        self.algorithm = make_algorithm(spec)
        check(self.algorithm, spec, Tabular.provides)
        self.method, self.warnings = describe(self.algorithm, spec), warnings_of(self.algorithm, spec)
        self.logits = torch.zeros((spec.states, spec.actions), dtype=torch.float64, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.logits], spec.learning_rate, eps=spec.adam_epsilon)
        self.lag_model, self.buffer = parse_lag(spec.lag, spec.capacity), PolicyBuffer(spec.capacity)
        self.state = self.algorithm.init_state()
        self.phase = self.gradient_steps = self.evaluation_steps = 0

    def __iter__(self) -> Iterator[PhaseRecord]:
        while self.phase < self.spec.phases:
            yield self.advance()

    def advance(self) -> PhaseRecord:
        began = time.perf_counter()
        phase = self.phase
        self.buffer.push(Version(phase, self.gradient_steps, {"logits": self.logits.detach().clone()}))
        data = self._act(phase)
        acted = time.perf_counter()
        metrics = self._learn(data, phase)
        learnt = time.perf_counter()
        self.phase += 1
        scores = self._evaluate() if phase in self.spec.evaluation_phases() else None
        metrics |= {"phase": phase, "steps": self.phase * self.spec.steps_per_phase}
        for way in Tabular.measures:
            metrics[f"eval_{way}"] = scores.mean(way) if scores else None
        evaluated = time.perf_counter()
        seconds = {"collect": acted - began, "learn": learnt - acted, "evaluate": evaluated - learnt}
        return PhaseRecord(metrics, seconds, scores)

    def _act(self, phase: int) -> Episodes:
        """Episodes, each acted by the version that the lag model gives it."""
        spec, rows = self.spec, np.arange(self.spec.episodes)
        assigned = self.lag_model.assign(phase, len(rows), stream(spec.seed, "assignment", phase))
        versions = [self.buffer[number] for number in assigned.tolist()]
        policy = softmax(np.stack([version.tensors["logits"].numpy() for version in versions]))
        noise = stream(spec.seed, "action", phase).random((spec.horizon + 1, 2, len(rows)))
        state, columns = (noise[0, 0] * spec.states).astype(np.int64), []
        for first, second in noise[1:]:
            action = drawn(policy[rows, state], first)
            following = drawn(self.world.transition[state, action], second)
            columns.append((state, action, following, np.log(policy[rows, state, action])))
            state = following
        states, actions, followings, logp = (np.stack(part, axis=1) for part in zip(*columns, strict=True))
        along = np.tile(np.array([(v.phase, v.gradient_step) for v in versions]).T[:, :, None], spec.horizon)
        return Episodes(states, actions, followings, logp, *along)

    def _learn(self, data: Episodes, phase: int) -> dict[str, Any]:
        """`epochs` gradient steps; returns what is said of the phase."""
        import torch

        spec, algorithm = self.spec, self.algorithm
        behaviour, lag = (
            torch.from_numpy(data.behaviour_logp),
            torch.from_numpy(phase - data.version).double(),
        )
        mask, start = torch.ones_like(behaviour), self._logp(data).detach()
        said: dict[str, Any] = {
            "tv_data": float(objectives.total_variation(objectives.importance_ratio(start, behaviour), mask)),
            "ess_data": float(
                objectives.effective_sample_size(objectives.importance_ratio(start, behaviour), mask)
            ),
            "lag_mean": float(lag.mean()),
            "lag_histogram": np.bincount(phase - data.version.ravel()).tolist(),
        }
        targets: Targets | None = None
        for _ in range(spec.epochs):
            if targets is None or algorithm.realign_every != "phase":
                targets = algorithm.targets(self._trajectories(data, behaviour, lag, mask))
            decisions = Decisions(
                target_logp=self._logp(data),
                behaviour_logp=behaviour,
                proximal_logp=start if algorithm.proximal == "recompute" else behaviour,
                advantage=self._scaled(targets.advantage),
                lag=lag,
                gradient_lag=torch.from_numpy(self.gradient_steps - data.gradient_step).double(),
                mask=mask,
                state=self.state,
            )
            answer = algorithm.policy_loss(decisions)
            said |= {"policy_loss": self._step(decisions, answer, phase)}
        own = {
            name: float(objectives.masked_mean(x.detach(), mask)) for name, x in answer.diagnostics.items()
        }
        self.state = algorithm.next_state(self.state, own)
        return said | {f"algorithm/{name}": value for name, value in {**own, **self.state}.items()}

    def _step(self, decisions: Decisions, answer: PolicyLoss, phase: int) -> float:
        import torch

        spec = self.spec
        loss = objectives.masked_mean(answer.loss, decisions.mask)
        log_policy = self.logits.log_softmax(1)
        entropy = -(log_policy.exp() * log_policy).sum(1).mean()
        self.optimizer.zero_grad()
        (loss - spec.entropy_coef * entropy).backward()
        torch.nn.utils.clip_grad_norm_([self.logits], spec.max_grad_norm)
        left = 1.0 - phase / spec.phases if spec.anneal_learning_rate else 1.0
        scale = self.algorithm.step_scale(decisions) * objectives.step_factor(decisions, spec.step_size)
        self.optimizer.param_groups[0]["lr"] = spec.learning_rate * left * scale
        self.optimizer.step()
        self.gradient_steps += 1
        return loss.item()

    def _trajectories(self, data: Episodes, behaviour: Tensor, lag: Tensor, mask: Tensor) -> Trajectories:
        """The critic is exact: the learner's own values, as they are now."""
        import torch

        values = self.world.values(softmax(self.logits.detach().numpy()))
        ends = torch.ones_like(mask)
        ends[:, -1] = 0.0
        return Trajectories(
            reward=torch.from_numpy(self.world.reward[data.state, data.action]),
            discount=torch.full_like(mask, self.spec.discount),
            continues=ends,
            value=torch.from_numpy(values[data.state]),
            next_value=torch.from_numpy(values[data.following]),
            behaviour_logp=behaviour,
            target_logp=self._logp(data).detach(),
            lag=lag,
            mask=mask,
            gae_lambda=self.spec.gae_lambda,
        )

    def _scaled(self, advantage: Tensor) -> Tensor:
        if self.spec.normalise_advantage and self.algorithm.normalise_advantage:
            return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        return advantage

    def _logp(self, data: Episodes) -> Tensor:
        return self.logits.log_softmax(1)[data.state, data.action]

    def _evaluate(self) -> Scores:
        logits = self.logits.detach().numpy()
        greedy = np.eye(self.spec.actions)[logits.argmax(1)]
        exact = {"sampled": self.world.score(softmax(logits)), "deterministic": self.world.score(greedy)}
        lengths = {way: [self.spec.horizon] for way in exact}
        return Scores({way: [value] for way, value in exact.items()}, lengths, 0)

    def close(self) -> None:
        """Nothing is held outside memory."""

    def state_dict(self) -> dict[str, Any]:
        return {
            "phase": self.phase,
            "gradient_steps": self.gradient_steps,
            "logits": self.logits.detach(),
            "optimizer": self.optimizer.state_dict(),
            "state": dict(self.state),
            "buffer": self.buffer.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.phase, self.gradient_steps, self.state = state["phase"], state["gradient_steps"], state["state"]
        self.logits.data.copy_(state["logits"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.buffer.load_state_dict(state["buffer"])


def softmax(logits: Floats) -> Floats:
    grown = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: Floats = grown / grown.sum(-1, keepdims=True)
    return probabilities


def drawn(probabilities: Floats, noise: Floats) -> NDArray[np.int64]:
    """One draw per row of `probabilities` [B, n] by `noise` [B] in [0, 1)."""
    below = (probabilities.cumsum(1) < noise[:, None]).sum(1)
    return np.minimum(below, probabilities.shape[1] - 1)
