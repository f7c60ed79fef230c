"""A kind of task that the harness has never heard of, in one file, as a third party would write it: small Markov
decision processes whose values are known exactly, and a table of logits as the policy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from staleharness import objectives
from staleharness.algorithm import Algorithm
from staleharness.base.streams import stream
from staleharness.batch import Decisions, Targets, Trajectories
from staleharness.spec import RunSpec
from staleharness.task import ENVS, Task
from staleharness.training.base_learner import Learner, MinibatchLoss, normalise
from staleharness.training.loop import Simulation
from staleharness.training.phase_record import PhaseData, Scores
from staleharness.training.policy_buffer import Version

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
    def simulation(cls, spec: RunSpec, folder: Path) -> TabularSimulation:
        assert isinstance(spec, TabularSpec)
        return TabularSimulation(spec, cls())


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
    """Data of a phase; all arrays [B, T]."""

    state: NDArray[np.int64]
    action: NDArray[np.int64]
    following: NDArray[np.int64]  # the state after the action
    behaviour_logp: Floats
    version: NDArray[np.int64]
    gradient_step: NDArray[np.int64]


class TabularLearner(Learner[Episodes, Targets]):
    """All of a phase at each gradient step; the critic is exact: the learner's own values, as they are now."""

    spec: TabularSpec

    def __init__(self, spec: TabularSpec, algorithm: Algorithm, world: World, logits: Tensor) -> None:
        super().__init__(spec, algorithm, [logits], [logits])
        self.world, self.logits = world, logits

    def begin(self, data: Episodes, phase: int) -> dict[str, Any]:
        import torch

        self.data = data
        self.behaviour, self.version = torch.from_numpy(data.behaviour_logp), data.version
        self.lag = torch.from_numpy(phase - data.version).double()
        self.mask, self.start = torch.ones_like(self.behaviour), self._logp(self.logits).detach()
        ratio = objectives.importance_ratio(self.start, self.behaviour)
        return {
            "tv_data": float(objectives.total_variation(ratio, self.mask)),
            "ess_data": float(objectives.effective_sample_size(ratio, self.mask)),
            "lag_mean": float(self.lag.mean()),
            "lag_histogram": np.bincount(phase - data.version.ravel()).tolist(),
        }

    def minibatches(self, epoch: int) -> Iterator[Targets]:
        if epoch == 0 or self.algorithm.realign_every != "phase":
            self.targets = self.algorithm.targets(self._trajectories())
        yield self.targets

    def gradient(self, minibatch: Targets) -> MinibatchLoss:
        import torch

        spec, advantage = self.spec, minibatch.advantage
        if spec.normalise_advantage and self.algorithm.normalise_advantage:
            advantage = normalise(advantage, self.mask, spec.advantage_correction)
        anchors = {"recompute": self.start, "behaviour": self.behaviour}
        anchor = self._logp(*self.shadow).detach() if self.shadow else anchors[self.algorithm.proximal]
        decisions = Decisions(
            target_logp=self._logp(self.logits),
            behaviour_logp=self.behaviour,
            proximal_logp=anchor,
            advantage=advantage,
            lag=self.lag,
            gradient_lag=torch.from_numpy(self.gradient_steps - self.data.gradient_step).double(),
            mask=self.mask,
            state=self.state,
        )
        answer = self.algorithm.policy_loss(decisions)
        loss = objectives.masked_mean(answer.loss, self.mask)
        log_policy = self.logits.log_softmax(1)
        entropy = -(log_policy.exp() * log_policy).sum(1).mean()
        decisions.target_logp.retain_grad()
        self.optimizer.zero_grad()
        (loss - spec.entropy_coef * entropy).backward()
        gradient = decisions.target_logp.grad
        clipped = objectives.masked_mean(((gradient == 0) & (advantage != 0)).double(), self.mask)
        return MinibatchLoss(decisions, answer, {"policy_loss": loss.detach(), "clipped": clipped})

    def _trajectories(self) -> Trajectories:
        import torch

        values = self.world.values(softmax(self.logits.detach().numpy()))
        inside = torch.ones_like(self.mask)
        inside[:, -1] = 0.0
        return Trajectories(
            reward=torch.from_numpy(self.world.reward[self.data.state, self.data.action]),
            discount=torch.full_like(self.mask, self.spec.discount),
            continues=inside,
            value=torch.from_numpy(values[self.data.state]),
            next_value=torch.from_numpy(values[self.data.following]),
            behaviour_logp=self.behaviour,
            target_logp=self._logp(self.logits).detach(),
            lag=self.lag,
            mask=self.mask,
            gae_lambda=self.spec.gae_lambda,
        )

    def _logp(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(1)[self.data.state, self.data.action]


class Table:
    """A table of logits [S, A] as the policy."""

    def __init__(self, spec: TabularSpec) -> None:
        import torch

        self.logits = torch.zeros((spec.states, spec.actions), dtype=torch.float64, requires_grad=True)

    def snapshot(self, phase: int, gradient_step: int) -> Version:
        return Version(phase, gradient_step, {"logits": self.logits.detach().clone()})


class TabularSimulation(Simulation[Episodes]):
    """Simulation of this kind: acting for a phase, and scores of the newest policy."""

    spec: TabularSpec
    policy: Table

    def __init__(self, spec: TabularSpec, task: Task) -> None:
        super().__init__(spec, task)
        self.world, self.policy = World(spec), Table(spec)
        self.learner = TabularLearner(spec, self.algorithm, self.world, self.policy.logits)

    def collect(self, phase: int) -> PhaseData[Episodes]:
        """Episodes, each acted by the version that the lag model gives it."""
        import torch

        spec, rows = self.spec, np.arange(self.spec.episodes)
        versions = [self.buffer[number] for number in self.lags.draw(phase, len(rows)).starts.tolist()]
        policy = softmax(np.stack([version.tensors["logits"].numpy() for version in versions]))
        noise = stream(spec.seed, "action", phase).random((spec.horizon + 1, 2, len(rows)))
        state, columns = (noise[0, 0] * spec.states).astype(np.int64), []
        for first, second in noise[1:]:
            action = sample(policy[rows, state], first)
            following = sample(self.world.transition[state, action], second)
            columns.append((state, action, following, np.log(policy[rows, state, action])))
            state = following
        states, actions, followings, logp = (np.stack(part, axis=1) for part in zip(*columns, strict=True))
        version_columns = np.tile(np.array([(v.phase, v.gradient_step) for v in versions]).T[:, :, None], spec.horizon)
        data = Episodes(states, actions, followings, logp, *version_columns)
        return PhaseData(data, torch.from_numpy(logp), {}, {})

    def evaluate(self) -> Scores:
        logits = self.policy.logits.detach().numpy()
        greedy = np.eye(self.spec.actions)[logits.argmax(1)]
        exact = {"sampled": self.world.score(softmax(logits)), "deterministic": self.world.score(greedy)}
        lengths = {way: [self.spec.horizon] for way in exact}
        return Scores({way: [value] for way, value in exact.items()}, lengths, 0)


def softmax(logits: Floats) -> Floats:
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    probabilities: Floats = exponentials / exponentials.sum(-1, keepdims=True)
    return probabilities


def sample(probabilities: Floats, noise: Floats) -> NDArray[np.int64]:
    """One draw per row of `probabilities` [B, n] by `noise` [B] in [0, 1)."""
    below = (probabilities.cumsum(1) < noise[:, None]).sum(1)
    return np.minimum(below, probabilities.shape[1] - 1)
